#pragma once

#include <functional>
#include <vector>

#include "core/comm/communicator.h"
#include "parallel/plan/step_waits.h"
#include "parallel/step/groups.h"

namespace slackline {

// Splits the time that a rank waited for transfers. When a transfer's last peer submitted it is
// known to that peer alone, so ranks tell each other after a step, beside the next one; that
// traffic is not counted. Used by the rank's thread; all ranks call alike.
class WaitTimes {
 public:
  explicit WaitTimes(Groups& groups);
  ~WaitTimes();
  WaitTimes(const WaitTimes&) = delete;
  WaitTimes& operator=(const WaitTimes&) = delete;

  // What was sent and waited for since the step before, for evaluation or a checkpoint, is of no
  // step.
  void begin_step();

  // Takes every transfer waited for since begin_step(), and begins to tell the other ranks; what is
  // still under way counts later. Does not wait. REQUIRES: the step before is finished.
  void end_step();

  // Runs what submits traffic of no step, between end_step() and begin_step().
  void beside_steps(const std::function<void()>& submit);

  // What the step that ended last waited for, once the others have told. Blocks.
  [[nodiscard]] StepWaits finish_step();

 private:
  struct Counted {
    Communicator* group = nullptr;
    std::size_t axis = 0;
    std::size_t bytes_before = 0;
    std::size_t across_before = 0;
  };

  // What one communicator's ranks tell each other of a step.
  struct Exchange;

  void record_transfers(bool on);

  Groups* groups_;
  std::vector<Counted> counted_;
  std::vector<Exchange> exchanges_;  // of the step that ended last
  StepWaits waits_;                  // likewise, as far as known
};

}  // namespace slackline
