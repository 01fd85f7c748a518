#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "core/comm/communicator.h"

namespace slackline {

// The axes whose traffic is reported, in this order.
inline constexpr std::array<std::string_view, 5> kReportedAxes = {
    "tensor", "pipeline", "data", "embedding", "outer"};

// The one that has a place in a record only where there are outer rounds.
inline constexpr std::size_t kOuterAxis = kReportedAxes.size() - 1;

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
