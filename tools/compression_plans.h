#pragma once

#include <string>

#include "parallel/compression_policy.h"
#include "tools/train_config.h"

namespace slackline {

// The compression plans of a run: what its policy makes, or what policy `replay` reads from
// compress.plan. Throws ConfigError where the policy or the file does not fit the config.
[[nodiscard]] PlanHistory compression_plans(const TrainConfig& config);

// A plan as an entry of plan.json, without what is measured or predicted.
[[nodiscard]] std::string compression_plan_json(const PlanFromStep& plan);

}  // namespace slackline
