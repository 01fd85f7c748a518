#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "core/comm/communicator.h"
#include "parallel/groups.h"

namespace slackline {

// The axes whose traffic is reported, in this order (CONTRACTS section 4).
inline constexpr std::array<std::string_view, 4> kReportedAxes = {
    "tensor", "pipeline", "data", "embedding"};

// One rank's transfers of a step, in seconds and bytes.
struct StepWaits {
  struct Axis {
    double bytes_sent = 0.0;
    double exposed = 0.0;
  };

  std::array<Axis, kReportedAxes.size()> axes{};  // as kReportedAxes
  double exposed = 0.0;  // waiting for a transfer after its last peer had submitted it
  double bubble = 0.0;   // waiting before that
};

// Splits the time that a rank waited for transfers. When the last peer submitted is known to the
// peers alone, so they tell each other at the end of a step; that traffic is not counted. Used by
// the rank's thread; all ranks call alike.
class WaitTimes {
 public:
  explicit WaitTimes(Groups& groups);

  // Of everything submitted and finished since the step before. REQUIRES: nothing that gather or
  // reduction of this step submitted is still to be waited for, or it counts in the next step.
  [[nodiscard]] StepWaits end_step();

 private:
  struct Counted {
    Communicator* group = nullptr;
    std::size_t axis = 0;
    std::size_t bytes_before = 0;
  };

  void add(Communicator* group);
  void split(Communicator& group,
             const std::vector<TransferRecord>& records,
             StepWaits& waits,
             double& exposed) const;

  Groups* groups_;
  std::vector<Counted> counted_;
};

}  // namespace slackline
