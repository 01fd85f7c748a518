#pragma once

#include <cstdint>
#include <set>

#include "parallel/predict/timeline/timeline.h"
#include "tools/plan/step_plan.h"

namespace slackline::report {

[[nodiscard]] bool is_compressed(const PlannedClass& row);

// Which transfers of a step travel compressed under the plan in force at that step. REQUIRES:
// step >= 1.
class CompressedTransfers {
 public:
  CompressedTransfers(const StepPlan& plan, std::int64_t step);

  // Whether a message between stages travels compressed.
  [[nodiscard]] bool contains(const schedule::TransferId& message) const {
    return messages_.contains(message);
  }

  // Whether what a node of a timeline stands for is such a message, or of a compressed class.
  [[nodiscard]] bool contains(const schedule::TimelineNode& node) const;

 private:
  std::set<schedule::TransferClass> classes_;
  std::set<schedule::TransferId> messages_;
};

}  // namespace slackline::report
