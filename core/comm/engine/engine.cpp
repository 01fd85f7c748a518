#include "core/comm/engine/engine.h"

#include <algorithm>
#include <sched.h>
#include <sys/prctl.h>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/joined_text.h"
#include "core/log.h"
#include "core/threads/start_thread.h"

// This file has what other threads ask of the engine, and the loop in which its thread does it.
namespace slackline {

namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// A rank that waits looks for itself: a few times, which take about as long as giving way does;
// then it listens for the bell. Where messages of other hosts are under way, which ring none, it
// gives way instead, and so long after the last event it blocks, and the engine's thread looks for
// it.
constexpr microseconds kLookForItself{20000};
constexpr int kLooksInARow = 8;
// It gives way for so long first where every rank has a core of its own: to wake up takes time.
constexpr microseconds kSpin{1000};
// It listens for no longer than a share of the time since the last event: parts of a message may
// follow each other without a ring.
constexpr int kShareWhileListening = 2;
constexpr microseconds kShortestListening{50};
// After so long, and each time twice that, it calls the engines of the ranks that it waits for:
// they may compute, and a message need their help.
constexpr microseconds kCallPeers{1000};
// When a core is free the engine's thread looks on without sleep after an event: for long while a
// rank waits, and for as long as the next submission may take otherwise.
constexpr microseconds kLookOn{200};
constexpr microseconds kLookOnForRank{20000};
// Otherwise it sleeps a share of the time since the last event: a small one while a rank is
// blocked, so that no transfer takes much longer than it has to, and none a millisecond longer.
// It sleeps longer where the bell suffices: for two milliseconds beside ranks that compute, and
// until waits are to be checked while a rank looks for itself.
constexpr int kShareOfElapsed = 8;
constexpr microseconds kShortestSleep{20};
constexpr int kShareWhileComputing = 2;
constexpr microseconds kShortestSleepWhileComputing{200};
constexpr microseconds kLongestSleep{1000};
constexpr microseconds kSleepBesideRanks{2000};
constexpr std::chrono::hours kLongestRest{1};
constexpr milliseconds kIdlePolling{100};    // for failures elsewhere while nothing is under way
constexpr unsigned long kTimerSlack = 1000;  // nanoseconds; the default of 50 us doubles a sleep

}  // namespace

bool Engine::Inbox::empty() const {
  return submitted.empty() && worked.empty() && parts.empty() && !failure && !abort_code &&
         jobs.empty() && !stop && !look;
}

Engine::Inbox Engine::Inbox::take(Taker taker) {
  Inbox taken = std::exchange(*this, {});
  if (taker != Taker::engine) {
    jobs.swap(taken.jobs);
    std::swap(abort_code, taken.abort_code);
    std::swap(stop, taken.stop);
    std::swap(look, taken.look);
  }
  return taken;
}

Engine::Engine(const MakeTransport& make_transport, const EngineOptions& options)
    : options_(options), background_(options.world.longest_background) {
  std::promise<void> made;
  thread_ = start_thread("a rank's transfers", [&] { run(make_transport, made); });
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
    ring_thread();
  }
  end_if_stuck();
  thread_.join();
}

// Calls whoever takes turns for what was just put into the inbox. REQUIRES: the caller holds mutex_
// or is a rank's: else the engine might find it, end and take the bell with it before it has rung.
void Engine::ring() {
  mail_.store(true);
  bell_->ring();
}

// Calls the engine's thread, for what it alone can do. REQUIRES: as for ring().
void Engine::ring_thread() {
  mail_.store(true);
  bell_->ring(Bell::Listener::engine);
}

// Ends the flight for those who wait for it. REQUIRES: within a turn.
void Engine::tell(Flight& flight, int status) {
  flight.status.store(status, std::memory_order_release);
  flight.status.notify_all();
  const int self = waiter_takes_turn_ ? 1 : 0;
  if (looking_.load(std::memory_order_relaxed) > self) {
    bell_->ring(Bell::Listener::rank);
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
  // Jobs that a turn starts may submit within it.
  const bool within_turn = taker_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  const bool looked_at = options_.free_cores && rests_until_.load(std::memory_order_relaxed) == 0;
  if (looked_at || within_turn) {
    ring();
    return;
  }
  mail_.store(true);
  const std::unique_lock turn(turn_, std::try_to_lock);
  if (!turn) {
    ring();
    return;
  }
  take_turn(Taker::submitter);
  wake_in_time();
}

void Engine::wait(Flight& flight) {
  if (flight.status.load(std::memory_order_acquire) == Flight::under_way) {
    double nobody = 0.0;
    flight.wait_begin.compare_exchange_strong(nobody, now(), std::memory_order_relaxed);
    look_for(flight);
    flight.status.wait(Flight::under_way, std::memory_order_acquire);
    flight.wait_end = now();
  } else if (flight.wait_begin.load(std::memory_order_relaxed) > 0.0) {
    flight.wait_end = flight.record.finished;
  }
  flight.waited = true;
  if (flight.status.load(std::memory_order_acquire) == Flight::failed) {
    {
      const std::lock_guard lock(mutex_);
      const auto cause = causes_.find(flight.group->world_rank());
      if (cause != causes_.end()) {
        std::rethrow_exception(cause->second);
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
  if (transport_->needs_polling() && rests_until_.load(std::memory_order_relaxed) != 0) {
    wake();
  }
}

void Engine::wake() {
  const std::lock_guard lock(mutex_);
  inbox_.look = true;
  ring_thread();
}

// Takes turns until the flight has ended, or nothing has happened for so long that to wait for it
// costs less; between them it listens for the bell, or gives way where that does not tell all. Over
// a transport that needs no polling others' turns bring all that is to come.
void Engine::look_for(const Flight& flight) {
  looking_.fetch_add(1, std::memory_order_relaxed);
  const bool polls = transport_->needs_polling();
  const microseconds patience = polls ? kLookForItself : microseconds{0};
  const microseconds spin = options_.crowded ? microseconds{0} : kSpin;
  auto last_event = Clock::now();
  Clock::duration call_after = kCallPeers;
  int looks = 0;
  while (flight.status.load(std::memory_order_acquire) == Flight::under_way) {
    const std::uint32_t heard = bell_->rings();
    // Whoever has the turn may have lost its core, and gets that sooner from one who blocks.
    std::unique_lock turn(turn_, std::defer_lock);
    if (polls) {
      turn.lock();
    }
    const bool looked = turn || turn.try_lock();
    if (looked && take_turn(Taker::waiter)) {
      last_event = Clock::now();
      call_after = kCallPeers;
      looks = 0;
      continue;
    }
    if (looked && polls && ++looks % kLooksInARow > 0) {
      continue;
    }
    const Clock::time_point time = Clock::now();
    const Clock::duration elapsed = time - last_event;
    const bool told = looked && transport_->bell_tells_all();
    if (told && elapsed >= spin) {
      if (flight.status.load(std::memory_order_relaxed) != Flight::under_way) {
        break;  // by a turn between this look and the one before
      }
      if (elapsed >= call_after) {
        transport_->call_peers();
        call_after = 2 * elapsed;
      }
      const Clock::duration longest = std::clamp<Clock::duration>(
          elapsed / kShareWhileListening, kShortestListening, kLongestSleep);
      const Clock::time_point until = std::min(time + longest, next_due().value_or(time + longest));
      turn.unlock();
      bell_->wait(Bell::Listener::rank, heard, until - time);
      continue;
    }
    if (!told && !mail_.load() && elapsed >= patience) {
      break;
    }
    if (looked) {
      turn.unlock();
    }
    sched_yield();
  }
  looking_.fetch_sub(1, std::memory_order_relaxed);
  if (mail_.load()) {
    bell_->ring();  // who left it there may have called this rank, which goes
  } else if (const std::unique_lock turn(turn_, std::try_to_lock); turn) {
    wake_in_time();
  }
}

// Wakes the engine's thread if it would sleep for longer than what is under way allows.
// REQUIRES: the caller holds turn_.
void Engine::wake_in_time() {
  const Clock::time_point rests_until{
      Clock::duration(rests_until_.load(std::memory_order_relaxed))};
  const Clock::time_point time = Clock::now();
  Clock::time_point latest = Clock::time_point::max();
  if (!flights_.empty()) {
    latest = time + 2 * kCheckInterval;
    if (transport_->needs_polling()) {
      latest = time +
               (bell_suffices() ? Clock::duration(kCheckInterval) : Clock::duration(kLongestSleep));
    }
  }
  latest = std::min(latest, next_due().value_or(latest));
  if (rests_until > latest) {
    wake();
  }
}

// Whether ranks that wait are woken by the bell, and to look for others takes a core from a rank.
// REQUIRES: within a turn.
bool Engine::bell_suffices() const {
  return !options_.free_cores && transport_->bell_tells_all();
}

std::future<void> Engine::leave_job(Job job) {
  std::packaged_task<void()> task(std::move(job));
  std::future<void> ended = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    inbox_.jobs.push_back(std::move(task));
    ring_thread();
  }
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
  const duration<double> limit(options_.world.timeout_seconds);
  if (opened.wait_for(limit) != std::future_status::ready) {
    throw CommError(
        fmt::format("a new group of ranks {}: not all of them come within {:g} seconds "
                    "(network.timeout_seconds)",
                    joined(members, ", "),
                    options_.world.timeout_seconds));
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
  if (Bell* const bell = transport_->bell()) {
    bell_ = bell;
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
  bool called = false;
  while (true) {
    const std::uint32_t heard = bell_->rings();
    std::unique_lock turn(turn_, std::defer_lock);
    Clock::time_point until = Clock::now() + kLongestSleep;
    if (called) {
      turn.lock();
    }
    if (turn || turn.try_lock()) {
      take_turn(Taker::engine);
      if (stop_ && flights_.empty()) {
        return;
      }
      until = rest_until();
      rests_until_.store(until.time_since_epoch().count(), std::memory_order_relaxed);
      turn.unlock();
    }
    called = rest(heard, until);
    rests_until_.store(0, std::memory_order_relaxed);
  }
}

// True when something happened. REQUIRES: the caller holds turn_.
bool Engine::take_turn(Taker taker) {
  taker_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  waiter_takes_turn_ = taker == Taker::waiter;
  bool moved = false;
  try {
    moved = take_inbox(taker);
    if (!failure_) {
      moved = transport_->progress() || moved;
      do {
        advance_ready();
      } while (post_background());
      check_waits();
    }
  } catch (const std::exception& problem) {
    stop_flights(problem.what());
  }
  if (moved) {
    last_event_ = Clock::now();
  }
  taker_.store({}, std::memory_order_relaxed);
  return moved;
}

// True when there was something to take.
bool Engine::take_inbox(Taker taker) {
  if (!mail_.exchange(false)) {
    return false;
  }
  Inbox news;
  {
    const std::lock_guard lock(mutex_);
    news = inbox_.take(taker);
    if (!inbox_.empty()) {
      mail_.store(true);
    }
  }
  if (news.empty()) {
    return false;
  }
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
  return true;
}

// Returns when something is to do that nobody submits or sends.
std::optional<Engine::Clock::time_point> Engine::next_due() const {
  const std::optional<Clock::time_point> held = background_.next_due();
  const std::optional<Clock::time_point> on_the_way = transport_->next_due();
  return held && on_the_way ? std::min(held, on_the_way) : (held ? held : on_the_way);
}

// Returns when the engine's thread takes its next turn; a time that has passed: at once.
Engine::Clock::time_point Engine::rest_until() const {
  const Clock::time_point time = Clock::now();
  const bool polls = transport_->needs_polling();
  const bool looked_for = looking_.load(std::memory_order_relaxed) > 0;
  const bool awaited = std::ranges::any_of(flights_, [](const std::shared_ptr<Flight>& flight) {
    return flight->wait_begin.load(std::memory_order_relaxed) > 0.0;
  });
  const auto elapsed = duration_cast<microseconds>(time - last_event_);
  if (failure_ || (flights_.empty() && !polls)) {
    return Clock::time_point::max();
  }
  if (options_.free_cores && !looked_for && elapsed < (awaited ? kLookOnForRank : kLookOn)) {
    return time;
  }
  Clock::time_point until = time + kCheckInterval;
  if (polls) {
    const microseconds longest = flights_.empty() ? kIdlePolling : kLongestSleep;
    const bool told = bell_suffices() && !flights_.empty();
    if (looked_for) {
      until = time + (told ? microseconds(kCheckInterval) : longest);
    } else if (awaited) {
      until = time + std::clamp(elapsed / kShareOfElapsed, kShortestSleep, longest);
    } else if (told) {
      until = time + kSleepBesideRanks;
    } else {
      until =
          time + std::clamp(elapsed / kShareWhileComputing, kShortestSleepWhileComputing, longest);
    }
  }
  return std::min(until, next_due().value_or(until));
}

// True when there may be something in the inbox. `heard`: rings of the bell before the turn.
bool Engine::rest(std::uint32_t heard, Clock::time_point until) {
  const Clock::time_point time = Clock::now();
  if (until <= time) {
    sched_yield();
  } else {
    bell_->wait(
        Bell::Listener::engine, heard, std::min<Clock::duration>(until - time, kLongestRest));
  }
  return mail_.load();
}

}  // namespace slackline
