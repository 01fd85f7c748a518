#pragma once

#include <string>

#include "tools/plan/step_plan.h"

namespace slackline {

// The plan as `slackline plan` prints it; docs/schedule.md, "Reading a plan", explains it.
[[nodiscard]] std::string plan_text(const StepPlan& plan);

// What is compressed from which step on, and why.
[[nodiscard]] std::string compression_text(const StepPlan& plan);

}  // namespace slackline
