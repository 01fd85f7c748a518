#pragma once

#include <cstdint>
#include <set>

#include "tools/plan/step_plan.h"

namespace slackline::report {

// The classes of a plan in force at a step. REQUIRES: step >= 1.
[[nodiscard]] const PlannedClasses& planned_at(const StepPlan& plan, std::int64_t step);

[[nodiscard]] bool is_compressed(const PlannedClass& row);

// Which transfers of a step travel compressed under the plan in force at that step.
class CompressedTransfers {
 public:
  CompressedTransfers(const StepPlan& plan, std::int64_t step);

  [[nodiscard]] bool contains(const schedule::TransferClass& members) const {
    return classes_.contains(members);
  }

  // Whether a message between stages travels compressed.
  [[nodiscard]] bool contains(const schedule::TransferId& message) const {
    return messages_.contains(message);
  }

 private:
  std::set<schedule::TransferClass> classes_;
  std::set<schedule::TransferId> messages_;
};

}  // namespace slackline::report
