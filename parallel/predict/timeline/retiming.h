#pragma once

#include <vector>

#include "parallel/predict/timeline/graph_times.h"

namespace slackline::schedule {

// Steps of one schedule under other codecs, many times faster than timelines of their own: nodes
// keep the order in which links served them in one timeline, so that a step is one pass over its
// graph. Buckets and the update, which no op waits for, are served in order of readiness after it.
// Exact as long as the links' order is the one that the other codecs would give, and they leave
// messages as eager as they were.
class Retiming {
 public:
  // Takes the order from the timeline of `costs`. `classes` are those that may change.
  // REQUIRES: as make_timeline().
  Retiming(const Schedule& schedule,
           const CostModel& costs,
           const std::vector<TransferClass>& classes);

  // The step with these costs of the classes, in their order. All other classes keep theirs.
  [[nodiscard]] Seconds step(const std::vector<ClassCost>& of_classes) const;

  // Which of the classes the step of the last call of step() waits for: no change of the others
  // makes it shorter. `of_classes` as in that call.
  [[nodiscard]] std::vector<bool> critical(const std::vector<ClassCost>& of_classes) const;

 private:
  mutable GraphTimes times_;  // of the last call
  mutable Seconds step_{};    // likewise
};

}  // namespace slackline::schedule
