#pragma once

#include <chrono>
#include <map>
#include <utility>

namespace slackline {

// Time on the rehearsal device: an op lasts as long as it is said to and computes nothing. Its
// seconds pass inside the products and attentions that it calls, shared out like their
// floating-point operations, so that transfers begin and end beside as much work as they would.
// How many an op has is counted when it first runs: all its seconds pass at its end then.
//
// Sleeps overshoot; what one takes too long the next ones take less. Belongs to the thread that
// made it and that runs the ops.
class RehearsalClock {
 public:
  using Op = std::pair<int, int>;  // whatever tells ops of different length apart

  RehearsalClock();

  // `op` begins, and takes `seconds` besides what it waits for transfers.
  void begin(Op op, double seconds);

  // From within: work of so many floating-point operations.
  void work(double operations);

  void end();

  // Outside of ops.
  void wait(double seconds) { pass(seconds); }

 private:
  void pass(double seconds);

  std::map<Op, double> operations_of_;  // counted when each first ran
  Op op_{};
  double seconds_ = 0.0;     // of the current op
  double operations_ = 0.0;  // so far
  double passed_ = 0.0;      // seconds so far
  double owed_ = 0.0;        // not slept yet; negative: slept too long
};

}  // namespace slackline
