#pragma once

#include <vector>

#include "parallel/predict/timeline/timeline.h"

// How much later each part of a step could end without making the step longer.
namespace slackline::schedule {

// Late end minus end per node of the timeline, over its graph: data, program order and order of
// service. A node that takes x longer than planned makes the step max(0, x - slack) longer, the
// order of service being kept.
[[nodiscard]] std::vector<Seconds> slack_of(const Timeline& timeline);

// A longest path, from its first node to the end of the step.
[[nodiscard]] std::vector<int> critical_path(const Timeline& timeline);

// All transfers of one class: how many, their bytes and time, and the least slack of any.
struct ClassSlack {
  TransferClass members{};
  int count = 0;
  Bytes bytes{};      // summed
  Seconds seconds{};  // summed, from readiness to arrival
  Seconds slack{};
};

// Sorted by class. Once-a-step classes have the chunk as stage; the embedding sync stage 0.
[[nodiscard]] std::vector<ClassSlack> class_slacks(const Timeline& timeline);

// The classes of exchanges over tensor ranks, of all ranks at the places of the pipeline. They are
// made within passes, one after the other, and have the slack of the pass.
[[nodiscard]] std::vector<ClassSlack> tensor_slacks(const Timeline& timeline,
                                                    const Schedule& schedule,
                                                    const CostModel& costs);

}  // namespace slackline::schedule
