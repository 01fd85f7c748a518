#include "core/comm/engine/engine.h"

#include <algorithm>
#include <cstdlib>
#include <sched.h>
#include <sys/prctl.h>
#include <utility>

#include "core/error.h"
#include "core/log.h"

namespace slackline {

namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// A sum over this many elements of inputs takes some microseconds; so does handing it over.
constexpr std::size_t kInlineSum = 32768;
// When a core is free the engine looks on without sleep after an event: for long while a rank
// waits, and for as long as the next submission may take otherwise.
constexpr microseconds kLookOn{200};
constexpr microseconds kLookOnForRank{20000};
// How long a rank does before it blocks: a hand-over between threads costs as much.
constexpr microseconds kSpin{20};
// Otherwise it sleeps a share of the time since the last event, so that no transfer takes much
// longer than it has to, and none a millisecond longer.
constexpr int kShareOfElapsed = 8;
constexpr microseconds kShortestSleep{20};
constexpr microseconds kLongestSleep{1000};
constexpr milliseconds kIdlePolling{100};    // for failures elsewhere while nothing is under way
constexpr unsigned long kTimerSlack = 1000;  // nanoseconds; the default of 50 us doubles a sleep

bool gives_way(const Message& message) {
  return message.way == Message::Way::send && message.flight->group->urgency == Urgency::background;
}

// Between stages; a collective's sends are many, and mostly on links of their own.
bool goes_first(const Message& message) {
  return message.way == Message::Way::send && message.lane == Lane::direct && !gives_way(message);
}

}  // namespace

bool Engine::Inbox::empty() const {
  return submitted.empty() && worked.empty() && parts.empty() && !failure && !abort_code &&
         jobs.empty() && !stop && !look;
}

Engine::Engine(const MakeTransport& make_transport, const EngineOptions& options)
    : options_(options), background_(options.longest_background) {
  std::promise<void> made;
  thread_ = std::thread([&] { run(make_transport, made); });
  try {
    made.get_future().get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    inbox_.stop = true;
  }
  ring();
  end_if_stuck();
  thread_.join();
}

// Tells the engine's thread of what was just put into the inbox.
void Engine::ring() {
  mail_.store(true, std::memory_order_release);
  wake_.notify_one();
}

double Engine::now() const {
  return duration<double>(Clock::now().time_since_epoch()).count() + options_.clock_offset;
}

void Engine::submit(std::shared_ptr<Flight> flight) {
  flight->record.submitted = now();
  {
    const std::lock_guard lock(mutex_);
    inbox_.submitted.push_back(std::move(flight));
  }
  ring();
}

void Engine::wait(Flight& flight) {
  if (flight.status.load(std::memory_order_acquire) == Flight::under_way) {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    note_wait(flight);
    if (options_.free_cores) {
      const auto until = Clock::now() + kSpin;
      while (flight.status.load(std::memory_order_acquire) == Flight::under_way &&
             Clock::now() < until) {
        sched_yield();
      }
    }
    flight.status.wait(Flight::under_way, std::memory_order_acquire);
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    flight.wait_end = now();
  } else if (flight.wait_begin.load(std::memory_order_relaxed) > 0.0) {
    flight.wait_end = flight.record.finished;
  }
  flight.waited = true;
  if (flight.status.load(std::memory_order_acquire) == Flight::failed) {
    {
      const std::lock_guard lock(mutex_);
      if (flight.cause) {
        std::rethrow_exception(flight.cause);
      }
    }
    throw CommError(flight.failure);
  }
}

void Engine::note_wait(Flight& flight) {
  if (flight.status.load(std::memory_order_acquire) != Flight::under_way) {
    return;
  }
  double nobody = 0.0;
  flight.wait_begin.compare_exchange_strong(nobody, now(), std::memory_order_relaxed);
  if (dozing_.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(mutex_);
    inbox_.look = true;
    wake_.notify_one();
  }
}

std::future<void> Engine::leave_job(Job job) {
  std::packaged_task<void()> task(std::move(job));
  std::future<void> ended = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    inbox_.jobs.push_back(std::move(task));
  }
  ring();
  return ended;
}

void Engine::run_here(const std::function<void()>& job) {
  leave_job(job).get();
}

void Engine::open_group(std::uint32_t id, const std::vector<int>& members) {
  std::future<void> opened = leave_job([this, id, members] {
    if (failure_) {
      throw CommError(*failure_);
    }
    transport_->open_group(id, members);
  });
  const duration<double> limit(options_.timeout_seconds);
  if (opened.wait_for(limit) != std::future_status::ready) {
    throw CommError("a new group: its members do not come within " +
                    std::to_string(options_.timeout_seconds) +
                    " seconds (network.timeout_seconds)");
  }
  opened.get();
}

void Engine::set_links(const Cluster& links, const std::vector<int>& nodes) {
  run_here([&] { background_.set_links(links, nodes); });
}

void Engine::run(const MakeTransport& make_transport, std::promise<void>& made) {
  prctl(PR_SET_TIMERSLACK, kTimerSlack);
  try {
    transport_ = make_transport(*this, options_);
  } catch (...) {
    ended_.set_value();
    made.set_exception(std::current_exception());
    return;
  }
  made.set_value();
  serve();
  if (!failure_) {
    try {
      transport_->close();
    } catch (const std::exception& problem) {
      log_warning(problem.what());
    }
  }
  ended_.set_value();
}

void Engine::serve() {
  while (true) {
    try {
      take_inbox();
      if (!failure_) {
        if (transport_->progress()) {
          last_event_ = Clock::now();
        }
        do {
          advance_ready();
        } while (post_background());
        check_waits();
      }
    } catch (const std::exception& problem) {
      stop_flights(problem.what());
    }
    if (stop_ && flights_.empty()) {
      return;
    }
    rest();
  }
}

void Engine::take_inbox() {
  if (!mail_.exchange(false, std::memory_order_acquire)) {
    return;
  }
  Inbox news;
  {
    const std::lock_guard lock(mutex_);
    if (inbox_.empty()) {
      return;
    }
    news = std::exchange(inbox_, {});
  }
  last_event_ = Clock::now();
  stop_ = stop_ || news.stop;
  const bool first_failure = news.failure && !failure_;
  if (first_failure) {
    failed_first_ = true;
    transport_->announce_failure(*news.failure);
    stop_flights(*news.failure);
  }
  if (news.abort_code) {
    leave(*news.abort_code);
  }
  list(news.submitted);
  if (!failure_) {
    for (Flight* flight : news.worked) {
      resume(*flight);
    }
    for (const auto& [flight, part] : news.parts) {
      if (flight->status.load(std::memory_order_relaxed) == Flight::under_way) {
        if (part == 0) {
          flight->record.submitted = now();
        }
        post_piece(*flight, part);
      }
    }
    for (const std::shared_ptr<Flight>& flight : news.submitted) {
      begin(*flight);
    }
  }
  for (std::packaged_task<void()>& job : news.jobs) {
    job();
  }
}

// All of them are in the list before anything that may throw, which fails the list.
void Engine::list(const std::vector<std::shared_ptr<Flight>>& submitted) {
  for (const std::shared_ptr<Flight>& flight : submitted) {
    if (failure_) {
      fail_flight(*flight);
    } else {
      flight->slot = flights_.size();
      flight->number = submitted_++;
      flights_.push_back(flight);
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

void Engine::post_step(Flight& flight) {
  Step& step = flight.moves.steps[flight.step];
  flight.stage = Flight::Stage::receiving;
  flight.left = step.pieces.size();
  for (std::size_t i = 0; i < step.pieces.size(); ++i) {
    if (i < flight.work.start_parts.size()) {
      flight.work.start_parts[i]([this, kept = flights_[flight.slot], i] {
        {
          const std::lock_guard lock(mutex_);
          inbox_.parts.emplace_back(kept, i);
        }
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
  const Message message{.way = piece.way,
                        .lane = piece.lane,
                        .self = group.world_rank(),
                        .peer = group.members[static_cast<std::size_t>(piece.peer)],
                        .communicator = group.id,
                        .sequence = flight.sequence,
                        .data = piece.data,
                        .bytes = piece.bytes,
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
  const Step& step = flight.moves.steps[flight.step];
  if (step.sum && step.sum->elements * step.sum->inputs.size() > kInlineSum) {
    flight.stage = Flight::Stage::summing;
    sums_.submit([this, &flight, &sum = *step.sum] {
      sum.run();
      tell_worked(flight);
    });
    return;
  }
  if (step.sum) {
    step.sum->run();
  }
  ++flight.step;
  flight.stage = Flight::Stage::posting;
}

// All has arrived.
void Engine::end_moves(Flight& flight) {
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

void Engine::fail_work(Flight& flight, const std::exception& problem) {
  if (dynamic_cast<const CommError*>(&problem) == nullptr) {
    const std::lock_guard lock(mutex_);
    flight.cause = std::current_exception();
  }
  fail(flight.describe() + ": " + problem.what());
}

void Engine::tell_worked(Flight& flight) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.worked.push_back(&flight);
  }
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
  flight.status.store(Flight::finished, std::memory_order_release);
  flight.status.notify_all();
  for (Flight* follower : std::exchange(flight.followers, {})) {
    begin(*follower);
  }
}

Engine::Clock::time_point Engine::rest_until() const {
  const Clock::time_point time = Clock::now();
  const bool polls = transport_->needs_polling();
  if (failure_ || (flights_.empty() && !polls)) {
    return Clock::time_point::max();
  }
  Clock::time_point until = time + kCheckInterval;
  if (polls) {
    const auto share = duration_cast<microseconds>(time - last_event_) / kShareOfElapsed;
    const microseconds longest = flights_.empty() ? kIdlePolling : kLongestSleep;
    until = time + std::clamp(share, kShortestSleep, longest);
  }
  until = std::min(until, background_.next_due(time).value_or(until));
  return std::min(until, transport_->next_due().value_or(until));
}

void Engine::rest() {
  if (options_.free_cores) {
    const bool awaited = waiting_.load(std::memory_order_relaxed) > 0;
    if (Clock::now() - last_event_ < (awaited ? kLookOnForRank : kLookOn)) {
      sched_yield();
      return;
    }
  }
  const Clock::time_point until = rest_until();
  std::unique_lock lock(mutex_);
  if (!inbox_.empty()) {
    return;
  }
  dozing_.store(transport_->needs_polling(), std::memory_order_relaxed);
  if (until == Clock::time_point::max()) {
    wake_.wait(lock, [&] { return !inbox_.empty(); });
  } else {
    wake_.wait_until(lock, until, [&] { return !inbox_.empty(); });
  }
  dozing_.store(false, std::memory_order_relaxed);
}

}  // namespace slackline
