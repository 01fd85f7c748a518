#include "core/rehearsal_clock.h"

#include <sys/prctl.h>
#include <thread>

namespace slackline {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Shorter sleeps cost more than they wait.
constexpr double kShortestSleep = 100e-6;

}  // namespace

RehearsalClock::RehearsalClock() {
  prctl(PR_SET_TIMERSLACK, 1UL);  // nanoseconds, instead of 50 us
}

void RehearsalClock::begin(Op op, double seconds) {
  op_ = op;
  seconds_ = seconds;
  operations_ = 0.0;
  passed_ = 0.0;
}

void RehearsalClock::work(double operations) {
  operations_ += operations;
  const auto known = operations_of_.find(op_);
  if (known != operations_of_.end() && known->second > 0.0) {
    const double share = seconds_ * operations / known->second;
    passed_ += share;
    pass(share);
  }
}

void RehearsalClock::end() {
  operations_of_.emplace(op_, operations_);
  pass(seconds_ - passed_);
}

void RehearsalClock::pass(double seconds) {
  owed_ += seconds;
  if (owed_ < kShortestSleep) {
    return;
  }
  const Clock::time_point start = Clock::now();
  std::this_thread::sleep_until(start +
                                std::chrono::duration_cast<Clock::duration>(Seconds(owed_)));
  owed_ -= Seconds(Clock::now() - start).count();
}

}  // namespace slackline
