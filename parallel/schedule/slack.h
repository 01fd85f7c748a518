#pragma once

#include <set>
#include <vector>

#include "parallel/schedule/timeline.h"

// How much later each part of a step could end without making the step longer.
namespace slackline::schedule {

// Late end minus end per node of the timeline, over its graph: data, program order and order of
// service. A node that takes x longer than planned makes the step max(0, x - slack) longer, the
// order of service being kept.
[[nodiscard]] std::vector<Seconds> slack_of(const Timeline& timeline);

// The step if node `delayed` took `delay` longer, the order of service being kept.
[[nodiscard]] Seconds step_with_delay(const Timeline& timeline, int delayed, Seconds delay);

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

// Whether every critical path has a transfer of one of these classes. Where several paths tie,
// only such a cut makes the step shorter, and each class of it alone gains nothing. `tolerance` is
// the slack up to which a path counts as critical.
[[nodiscard]] bool cuts_critical_paths(const Timeline& timeline,
                                       const std::set<TransferClass>& classes,
                                       Seconds tolerance = {});

}  // namespace slackline::schedule
