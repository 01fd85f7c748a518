#include "core/comm/engine.h"

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

// A sum of up to this many inputs' elements takes about a microsecond; the hand-over takes ten.
constexpr std::size_t kInlineSum = 4096;
// How long the engine looks on without sleep after an event when a core is free, and how long a
// waiting rank does before it blocks: a hand-over between threads costs as much.
constexpr microseconds kLookOn{200};
constexpr microseconds kSpin{20};
// With ranks on every core, sleep a quarter of the time since the last event: short while something
// is about to come, and no more than the millisecond of DESIGN section 3.
constexpr microseconds kShortestSleep{20};
constexpr microseconds kLongestSleep{1000};
constexpr milliseconds kCheckEvery{20};      // waits too long, and the end
constexpr milliseconds kIdlePolling{100};    // for failures elsewhere while nothing is under way
constexpr unsigned long kTimerSlack = 1000;  // nanoseconds; the default of 50 us doubles a sleep

}  // namespace

bool Engine::Inbox::empty() const {
  return submitted.empty() && summed.empty() && !failure && !abort_code && jobs.empty() && !stop &&
         !look;
}

Engine::Engine(const MakeTransport& make_transport, const EngineOptions& options)
    : options_(options) {
  sums_ = std::make_unique<SumWorker>([this](Flight& flight) {
    {
      const std::lock_guard lock(mutex_);
      inbox_.summed.push_back(&flight);
    }
    wake_.notify_one();
  });
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
  wake_.notify_one();
  end_if_stuck();
  thread_.join();
}

// A thread that is stuck inside a library cannot be joined, and all ranks end, always.
void Engine::end_if_stuck() {
  const duration<double> limit(options_.timeout_seconds + 5.0);
  if (ended_.get_future().wait_for(limit) != std::future_status::ready) {
    log_error("the communication thread does not end; leaving without it");
    std::_Exit(static_cast<int>(ExitCode::device));
  }
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
  wake_.notify_one();
}

void Engine::wait(Flight& flight) {
  if (flight.status.load(std::memory_order_acquire) == Flight::under_way) {
    flight.wait_begin.store(now(), std::memory_order_relaxed);
    if (dozing_.load(std::memory_order_relaxed)) {
      const std::lock_guard lock(mutex_);
      inbox_.look = true;
      wake_.notify_one();
    }
    if (options_.free_cores) {
      const auto until = Clock::now() + kSpin;
      while (flight.status.load(std::memory_order_acquire) == Flight::under_way &&
             Clock::now() < until) {
        sched_yield();
      }
    }
    flight.status.wait(Flight::under_way, std::memory_order_acquire);
  }
  if (flight.status.load(std::memory_order_acquire) == Flight::failed) {
    throw CommError(flight.failure);
  }
}

void Engine::fail(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!inbox_.failure) {
      inbox_.failure = reason;
    }
  }
  wake_.notify_one();
}

void Engine::abort(const std::string& reason, int code) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.failure = reason;
    inbox_.abort_code = code;
  }
  wake_.notify_one();
  std::this_thread::sleep_for(milliseconds(2000));  // the engine ends the process well before
  std::_Exit(code);
}

void Engine::run_here(const std::function<void()>& job) {
  std::packaged_task<void()> task(job);
  std::future<void> ended = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    inbox_.jobs.push_back(std::move(task));
  }
  wake_.notify_one();
  ended.get();
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
        advance_ready();
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
  if (news.failure && !failure_) {
    transport_->announce_failure(*news.failure);
    stop_flights(*news.failure);
  }
  if (news.abort_code) {
    transport_->abort(*news.abort_code);
    std::_Exit(*news.abort_code);
  }
  if (!failure_) {
    for (Flight* flight : news.summed) {
      ++flight->step;
      flight->stage = Flight::Stage::posting;
      advance(*flight);
    }
  }
  start(news.submitted);
  for (std::packaged_task<void()>& job : news.jobs) {
    job();
  }
}

// All of them are in the list before any can fail the rest.
void Engine::start(const std::vector<std::shared_ptr<Flight>>& submitted) {
  for (const std::shared_ptr<Flight>& flight : submitted) {
    if (failure_) {
      fail_flight(*flight);
    } else {
      flight->slot = flights_.size();
      flights_.push_back(flight);
    }
  }
  if (!failure_) {
    for (const std::shared_ptr<Flight>& flight : submitted) {
      advance(*flight);
    }
  }
}

void Engine::advance(Flight& flight) {
  flight.advancing = true;
  while (true) {
    if (flight.stage == Flight::Stage::posting) {
      if (flight.step == flight.moves.steps.size()) {
        finish(flight);
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
  const Membership& group = *flight.group;
  for (std::size_t i = 0; i < step.pieces.size(); ++i) {
    const Piece& piece = step.pieces[i];
    transport_->post({.way = piece.way,
                      .lane = piece.lane,
                      .self = group.world_rank(),
                      .peer = group.members[static_cast<std::size_t>(piece.peer)],
                      .communicator = group.id,
                      .sequence = flight.sequence,
                      .data = piece.data,
                      .bytes = piece.bytes,
                      .flight = &flight,
                      .piece = i});
  }
}

void Engine::sum_step(Flight& flight) {
  const Step& step = flight.moves.steps[flight.step];
  if (step.sum && step.sum->elements * step.sum->inputs.size() > kInlineSum) {
    flight.stage = Flight::Stage::summing;
    sums_->submit(flight);
    return;
  }
  if (step.sum) {
    step.sum->run();
  }
  ++flight.step;
  flight.stage = Flight::Stage::posting;
}

void Engine::message_done(const Message& message) {
  Flight& flight = *message.flight;
  flight.moves.steps[flight.step].pieces[message.piece].done = true;
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
  flight.moves = {};
  flight.record.finished = now();
  flight.record.wait_begin = flight.wait_begin.load(std::memory_order_relaxed);
  flight.status.store(Flight::finished, std::memory_order_release);
  flight.status.notify_all();
}

void Engine::check_waits() {
  const Clock::time_point time = Clock::now();
  if (flights_.empty() || time - last_check_ < kCheckEvery) {
    return;
  }
  last_check_ = time;
  const double seconds = now();
  if (end_seen_ == 0.0 && options_.end_expected != nullptr && options_.end_expected()) {
    end_seen_ = seconds;
  }
  for (const std::shared_ptr<Flight>& flight : flights_) {
    const double begin = flight->wait_begin.load(std::memory_order_relaxed);
    if (begin == 0.0) {
      continue;
    }
    if (end_seen_ > 0.0 && seconds - std::max(begin, end_seen_) > options_.end_grace_seconds) {
      throw CommError(flight->describe() + flight->missing_peers() +
                      ": not finished when this process was told to end");
    }
    if (seconds - begin > options_.timeout_seconds) {
      throw CommError(flight->describe() + flight->missing_peers() + ": no answer within " +
                      std::to_string(options_.timeout_seconds) +
                      " seconds (network.timeout_seconds)");
    }
  }
}

void Engine::stop_flights(const std::string& reason) {
  failure_ = reason;
  sums_->drain();
  ready_.clear();
  for (const std::shared_ptr<Flight>& flight : flights_) {
    fail_flight(*flight);
  }
  flights_.clear();
}

void Engine::fail_flight(Flight& flight) {
  const std::string who = flight.describe();
  flight.failure =
      failure_->starts_with(who) ? *failure_ : who + flight.missing_peers() + ": " + *failure_;
  flight.status.store(Flight::failed, std::memory_order_release);
  flight.status.notify_all();
}

Engine::Clock::time_point Engine::rest_until() const {
  const Clock::time_point time = Clock::now();
  const bool polls = transport_->needs_polling();
  if (failure_ || (flights_.empty() && !polls)) {
    return Clock::time_point::max();
  }
  Clock::time_point until = time + kCheckEvery;
  if (polls) {
    const auto quarter = duration_cast<microseconds>(time - last_event_) / 4;
    const microseconds longest = flights_.empty() ? kIdlePolling : kLongestSleep;
    until = time + std::clamp(quarter, kShortestSleep, longest);
  }
  return std::min(until, transport_->next_due().value_or(until));
}

void Engine::rest() {
  if (options_.free_cores && Clock::now() - last_event_ < kLookOn) {
    sched_yield();
    return;
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
