#pragma once

#include <array>
#include <functional>
#include <string_view>
#include <vector>

#include "core/comm/communicator.h"
#include "parallel/step/groups.h"

namespace slackline {

// The axes whose traffic is reported, in this order (CONTRACTS section 4).
inline constexpr std::array<std::string_view, 4> kReportedAxes = {
    "tensor", "pipeline", "data", "embedding"};

// One transfer that a rank waited for, in seconds of the world's clock.
struct Wait {
  std::size_t axis = 0;  // of kReportedAxes; their number: the agreement of all ranks
  TransferRecord record{};
  double peers_submitted = 0.0;  // when the last peer had
};

// One rank's transfers of a step, in seconds and bytes.
struct StepWaits {
  struct Axis {
    double bytes_sent = 0.0;
    double exposed = 0.0;
  };

  std::array<Axis, kReportedAxes.size()> axes{};  // as kReportedAxes
  double exposed = 0.0;           // waiting for a transfer after its last peer had submitted it
  double bubble = 0.0;            // waiting before that
  std::vector<Wait> transfers{};  // in order of submission on each communicator
};

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
  };

  // What one communicator's ranks tell each other of a step.
  struct Exchange;

  void add(Communicator* group);
  void record_transfers(bool on);

  Groups* groups_;
  std::vector<Counted> counted_;
  std::vector<Exchange> exchanges_;  // of the step that ended last
  StepWaits waits_;                  // likewise, as far as known
};

}  // namespace slackline
