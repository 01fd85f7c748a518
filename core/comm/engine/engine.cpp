#include "core/comm/engine/engine.h"

#include <algorithm>
#include <sched.h>
#include <sys/prctl.h>
#include <utility>

#include "core/error.h"
#include "core/log.h"

// This file has what other threads ask of the engine, and the loop in which its thread does it.
namespace slackline {

namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

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
    mail_.store(true, std::memory_order_release);  // else the inbox stays full, and none rests
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
