#pragma once

#include <string>

#include "parallel/plan/step_costs.h"

namespace slackline {

// Reads a cost file (docs/schedule.md, "Costs"). Throws ConfigError that
// starts with the path.
[[nodiscard]] StepCosts read_cost_file(const std::string& path);

// The text of a cost file, which read_cost_file reads back without loss.
[[nodiscard]] std::string cost_file_text(const StepCosts& costs);

}  // namespace slackline
