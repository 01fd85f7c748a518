#include <algorithm>
#include <cstdlib>

#include "core/comm/engine/engine.h"
#include "core/error.h"
#include "core/log.h"

// How waits end that the data do not end: failures here and elsewhere, answers that do not come,
// and the end of the process.
namespace slackline {

namespace {

using std::chrono::duration;
using std::chrono::milliseconds;

// Open MPI kills the others as soon as one has gone: first all get to say why they end, which may
// take the interval between checks of waits. Its own exit code is that of the first to go: this has
// to be the rank that failed, not one that it told.
constexpr milliseconds kLastWords{200};
constexpr milliseconds kLastWordsOfOthers{500};

// For the engine to tell the other ranks, to wait as above and to call MPI_Abort, which does not
// return before the launcher has killed this process and lost its exit code.
constexpr milliseconds kAbortTime{900};

}  // namespace

// A thread that is stuck inside a library cannot be joined, and all ranks end, always.
void Engine::end_if_stuck() {
  const duration<double> limit(options_.world.timeout_seconds + 5.0);
  if (ended_.get_future().wait_for(limit) != std::future_status::ready) {
    log_error("the communication thread does not end; leaving without it");
    std::_Exit(static_cast<int>(ExitCode::device));
  }
}

void Engine::fail(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!inbox_.failure) {
    inbox_.failure = reason;
  }
  ring();
}

void Engine::abort(const std::string& reason, int code) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.failure = reason;
    inbox_.abort_code = code;
    ring_thread();
  }
  std::this_thread::sleep_for(kAbortTime);
  std::_Exit(code);
}

void Engine::leave(int code) {
  // A launcher that has told this process to end does so to all, and leaves them a second.
  const bool ending = options_.world.end_expected != nullptr && options_.world.end_expected();
  std::this_thread::sleep_for(ending || failed_first_ ? kLastWords : kLastWordsOfOthers);
  if (!ending) {
    transport_->abort(code);
  }
  std::_Exit(code);
}

// Returns the flight that this one waits for: itself, or of a sum that its window holds the group's
// oldest one.
const Flight& Engine::awaited(const Flight& flight) const {
  const Flight* oldest = &flight;
  if (!flight.make_moves || flight.stage != Flight::Stage::posting) {
    return flight;
  }
  for (const std::shared_ptr<Flight>& other : flights_) {
    if (other->group == flight.group && other->ticket && *other->ticket < *oldest->ticket) {
      oldest = other.get();
    }
  }
  return *oldest;
}

void Engine::check_waits() {
  const Clock::time_point time = Clock::now();
  if (flights_.empty() || time - last_check_ < kCheckInterval) {
    return;
  }
  last_check_ = time;
  const double seconds = now();
  if (end_seen_ == 0.0 && options_.world.end_expected != nullptr && options_.world.end_expected()) {
    end_seen_ = seconds;
  }
  for (const std::shared_ptr<Flight>& flight : flights_) {
    const double begin = flight->wait_begin.load(std::memory_order_relaxed);
    if (begin == 0.0) {
      continue;
    }
    const Flight& needed = awaited(*flight);
    const bool needs_others = needed.stage == Flight::Stage::receiving;
    if (needs_others && end_seen_ > 0.0 &&
        seconds - std::max(begin, end_seen_) > options_.world.end_grace_seconds) {
      throw CommError(needed.describe() + needed.missing_peers() +
                      ": not finished when this process was told to end");
    }
    const double patience = needed.record.note.patience_seconds;
    if (seconds - begin > options_.world.timeout_seconds + patience) {
      throw CommError(needed.describe() + needed.missing_peers() + ": no answer within " +
                      std::to_string(options_.world.timeout_seconds) +
                      " seconds (network.timeout_seconds)" +
                      (patience > 0.0 ? " and " + std::to_string(patience) + " of a round" : ""));
    }
  }
}

void Engine::stop_flights(const std::string& reason) {
  failure_ = reason;
  has_failed_ = true;
  sums_.drain();
  ready_.clear();
  sum_windows_.clear();
  held_sums_.clear();
  background_.clear();
  for (const std::shared_ptr<Flight>& flight : flights_) {
    fail_flight(*flight);
  }
  flights_.clear();
}

void Engine::fail_flight(Flight& flight) {
  const std::string who = flight.describe();
  if (flight.work.ended) {
    flight.work.ended();
  }
  flight.work = {};
  flight.failure =
      failure_->starts_with(who) ? *failure_ : who + flight.missing_peers() + ": " + *failure_;
  tell(flight, Flight::failed);
}

}  // namespace slackline
