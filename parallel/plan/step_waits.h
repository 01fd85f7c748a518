#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "core/comm/communicator.h"
#include "parallel/mesh/reported_axes.h"

namespace slackline {

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
    double bytes_across = 0.0;  // of them, to other groups of data ranks
    double exposed = 0.0;
  };

  std::array<Axis, kReportedAxes.size()> axes{};  // as kReportedAxes
  double exposed = 0.0;           // waiting for a transfer after its last peer had submitted it
  double bubble = 0.0;            // waiting before that
  std::vector<Wait> transfers{};  // in order of submission on each communicator
};

}  // namespace slackline
