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

// What a checkpoint says of compression: the plan in force as such an entry, and where the run has
// several, all of them as its `history`.
[[nodiscard]] std::string plan_document(const PlanFromStep& in_force, const PlanHistory& plans);

// The plans a resumed run goes on with: those of the checkpoint where they are the config's and
// what a guard has made of them since; else the config's.
[[nodiscard]] PlanHistory resumed_plans(const PlanHistory& of_config, const std::string& document);

}  // namespace slackline
