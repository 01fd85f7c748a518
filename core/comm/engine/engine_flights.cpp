#include <algorithm>
#include <utility>

#include "core/comm/engine/engine.h"
#include "core/error.h"
#include "core/joined_text.h"

// A flight goes from its start to its end in turns: it makes its data, posts a step's
// messages, receives them, sums, posts the next step, and takes what has arrived.
namespace slackline {

namespace {

// A sum over this many elements of inputs takes some microseconds; so does handing it over. A rank
// that waits has nothing else to do and adds more, some tenths of a millisecond at most, in which
// nothing else of its process moves.
constexpr std::size_t kInlineSum = 32768;
constexpr std::size_t kInlineSumOfWaiter = 1048576;

// True for a send that goes once the sends before it have left the link (BackgroundSends).
bool gives_way(const Message& message) {
  return message.way == Message::Way::send && message.flight->group->urgency == Urgency::background;
}

// True for a send between stages, which sends that give way wait for. A collective's sends are
// many, and mostly on links of their own.
bool goes_first(const Message& message) {
  return message.way == Message::Way::send && message.lane == Lane::direct && !gives_way(message);
}

void run_all(const std::vector<OrderedSum>& sums) {
  for (const OrderedSum& sum : sums) {
    sum.run();
  }
}

}  // namespace

// All of them are in the list before anything that may throw, which fails the list.
void Engine::list(const std::vector<std::shared_ptr<Flight>>& submitted) {
  for (const std::shared_ptr<Flight>& flight : submitted) {
    if (failure_) {
      fail_flight(*flight);
    } else {
      flight->slot = flights_.size();
      flight->number = submitted_++;
      flights_.push_back(flight);
      if (flight->make_moves) {
        const auto [window, is_new] = sum_windows_.try_emplace(
            flight->group.get(), SumWindow::limit_of(options_.world.longest_background));
        flight->ticket = window->second.add(flight->sum_bytes);
      }
    }
  }
}

void Engine::begin(Flight& flight) {
  const std::shared_ptr<Flight> before = std::move(flight.follows);
  if (before != nullptr && before->status.load(std::memory_order_acquire) == Flight::under_way) {
    before->followers.push_back(&flight);
  } else if (flight.work.before || flight.work.start_before) {
    flight.stage = Flight::Stage::making;
    do_work(flight,
            flight.work.start_before,
            std::move(flight.work.before),
            std::move(flight.work.beside));
  } else {
    flight.stage = Flight::Stage::posting;
    advance(flight);
  }
}

// Its sum or its work has ended.
void Engine::resume(Flight& flight) {
  if (flight.stage == Flight::Stage::taking) {
    finish(flight);
    return;
  }
  if (flight.stage == Flight::Stage::summing) {
    ++flight.step;
  } else if (flight.work.start_before) {
    flight.record.submitted = now();
  }
  flight.stage = Flight::Stage::posting;
  advance(flight);
}

void Engine::advance(Flight& flight) {
  flight.advancing = true;
  while (true) {
    if (flight.stage == Flight::Stage::posting) {
      if (!has_moves(flight)) {
        break;
      }
      if (flight.step == flight.moves.steps.size()) {
        end_moves(flight);
        return;
      }
      post_step(flight);
    }
    if (flight.stage == Flight::Stage::summing || flight.left > 0) {
      break;
    }
    sum_step(flight);
  }
  flight.advancing = false;
}

// Makes them where they are still to be made. False: the flight's window holds it, or there is no
// memory for them.
bool Engine::has_moves(Flight& flight) {
  if (!flight.make_moves) {
    return true;
  }
  if (!sum_windows_.at(flight.group.get()).may_begin(*flight.ticket)) {
    held_sums_.push_back(&flight);
    return false;
  }
  try {
    flight.moves = std::exchange(flight.make_moves, {})();
  } catch (const std::exception& problem) {
    fail_work(flight, problem);
    return false;
  }
  return true;
}

// All its messages are done: it needs no scratch, and lets go on what its window held for it.
void Engine::end_sum(Flight& flight) {
  flight.moves = {};
  const auto window = sum_windows_.find(flight.group.get());
  window->second.end(*std::exchange(flight.ticket, std::nullopt));
  const auto may_begin = [&](const Flight* held) {
    return held->group == flight.group && window->second.may_begin(*held->ticket);
  };
  for (auto held = held_sums_.rbegin(); held != held_sums_.rend(); ++held) {
    if (may_begin(*held)) {  // the last in the list is looked at first
      (*held)->ready = true;
      ready_.push_back(*held);
    }
  }
  std::erase_if(held_sums_, may_begin);
  if (window->second.empty()) {
    sum_windows_.erase(window);
  }
}

void Engine::post_step(Flight& flight) {
  Step& step = flight.moves.steps[flight.step];
  flight.stage = Flight::Stage::receiving;
  flight.left = step.pieces.size();
  for (std::size_t i = 0; i < step.pieces.size(); ++i) {
    if (i < flight.work.start_parts.size()) {
      flight.work.start_parts[i]([this, kept = flights_[flight.slot], i] {
        const std::lock_guard lock(mutex_);
        inbox_.parts.emplace_back(kept, i);
        ring();
      });
    } else {
      post_piece(flight, i);
    }
  }
}

void Engine::post_piece(Flight& flight, std::size_t i) {
  const Membership& group = *flight.group;
  const Piece& piece = flight.moves.steps[flight.step].pieces[i];
  const Message message{
      .way = piece.way,
      .lane = piece.lane,
      .self = group.world_rank(),
      .peer = group.members[static_cast<std::size_t>(piece.peer)],
      .communicator = group.id,
      .sequence = flight.sequence,
      .data = piece.data,
      .bytes = piece.bytes,
      .link_share = flight.record.note.whole_bytes > 0 ? 1.0 : 1.0 / options_.world.message_scale,
      .flight = &flight,
      .piece = i};
  if (gives_way(message)) {
    background_.add(message, flight.number);
    return;
  }
  if (goes_first(message)) {
    background_.begin_urgent(message, Clock::now());
  }
  transport_->post(message);
}

// Whether there was any that could go.
bool Engine::post_background() {
  bool posted = false;
  while (const std::optional<Message> message = background_.next(Clock::now())) {
    transport_->post(*message);
    posted = true;
  }
  return posted;
}

void Engine::sum_step(Flight& flight) {
  const std::vector<OrderedSum>& sums = flight.moves.steps[flight.step].sums;
  std::size_t addends = 0;
  for (const OrderedSum& sum : sums) {
    addends += sum.elements * sum.inputs.size();
  }
  const bool alone = waiter_takes_turn_ && transport_->needs_polling();
  if (addends > (alone ? kInlineSumOfWaiter : kInlineSum)) {
    flight.stage = Flight::Stage::summing;
    sums_.submit([this, &flight, &sums] {
      run_all(sums);
      tell_worked(flight);
    });
    return;
  }
  run_all(sums);
  ++flight.step;
  flight.stage = Flight::Stage::posting;
}

// All has arrived.
void Engine::end_moves(Flight& flight) {
  if (flight.ticket) {
    end_sum(flight);
  }
  if (flight.work.after) {
    flight.stage = Flight::Stage::taking;
    do_work(flight, flight.work.start_after, std::move(flight.work.after), {});
  } else {
    finish(flight);
  }
}

// A flight that has failed meanwhile is in nobody's list any more; so the job holds it.
void Engine::do_work(Flight& flight, const TransferWork::Start& start, Job job, Job beside) {
  const std::shared_ptr<Flight>& kept = flights_[flight.slot];
  if (!job) {
    start([this, kept] { tell_worked(*kept); });
    return;
  }
  Job work = [this, kept, job = std::move(job), beside = std::move(beside)] {
    try {
      job();
      tell_worked(*kept);
      if (beside) {
        beside();
      }
    } catch (const std::exception& problem) {
      fail_work(*kept, problem);
    }
  };
  if (start) {
    start([worker = flight.work.worker, work = std::move(work)] { worker->submit(work); });
  } else {
    flight.work.worker->submit(std::move(work));
  }
}

// Whatever its rank waits for, it learns what has happened to it.
void Engine::fail_work(Flight& flight, const std::exception& problem) {
  if (dynamic_cast<const CommError*>(&problem) == nullptr) {
    const std::lock_guard lock(mutex_);
    causes_.try_emplace(flight.group->world_rank(), std::current_exception());
  }
  fail(flight.describe() + ": " + first_line(problem.what()));
}

void Engine::tell_worked(Flight& flight) {
  const std::lock_guard lock(mutex_);
  inbox_.worked.push_back(&flight);
  ring();
}

void Engine::message_done(const Message& message) {
  Flight& flight = *message.flight;
  flight.moves.steps[flight.step].pieces[message.piece].done = true;
  if (gives_way(message)) {
    background_.done(message);
  } else if (goes_first(message)) {
    background_.end_urgent(message);
  }
  if (flight.work.parts_done) {
    const std::vector<Piece>& parts = flight.moves.steps[flight.step].pieces;
    const auto missing = std::ranges::find(parts, false, &Piece::done);
    flight.work.parts_done(static_cast<std::size_t>(missing - parts.begin()));
  }
  --flight.left;
  if (flight.left == 0 && !flight.advancing && !flight.ready) {
    flight.ready = true;
    ready_.push_back(&flight);
  }
}

void Engine::advance_ready() {
  while (!ready_.empty()) {
    Flight& flight = *ready_.back();
    ready_.pop_back();
    flight.ready = false;
    advance(flight);
  }
}

void Engine::finish(Flight& flight) {
  const std::shared_ptr<Flight> kept = std::move(flights_[flight.slot]);
  if (flight.slot + 1 != flights_.size()) {
    flights_[flight.slot] = std::move(flights_.back());
    flights_[flight.slot]->slot = flight.slot;
  }
  flights_.pop_back();
  if (flight.work.ended) {
    flight.work.ended();
  }
  flight.moves = {};
  flight.work = {};
  flight.record.finished = now();
  flight.record.wait_begin = flight.wait_begin.load(std::memory_order_relaxed);
  tell(flight, Flight::finished);
  for (Flight* follower : std::exchange(flight.followers, {})) {
    begin(*follower);
  }
}

}  // namespace slackline
