#pragma once

#include <string>

#include "parallel/compression_guard.h"
#include "parallel/compression_policy.h"
#include "parallel/step_cost_model.h"
#include "tools/train_config.h"

namespace slackline {

// Policy critical_path measures steps up to this one, and its plan is in force from the other.
inline constexpr std::int64_t kLastMeasuredStep = 6;
inline constexpr std::int64_t kFirstChosenStep = kLastMeasuredStep + kStepsToChange;

// The compression plans that a run begins with: what its policy makes, or what policy `replay`
// reads from compress.plan. Throws ConfigError where the policy or the file does not fit the
// config.
[[nodiscard]] PlanHistory compression_plans(const TrainConfig& config);

// Those that it is expected to have in the end: with what policy critical_path chooses by these
// costs, on the rehearsal device from the first step on.
[[nodiscard]] PlanHistory expected_plans(const TrainConfig& config,
                                         const StepCosts& costs,
                                         const LinkSpeeds& links);

// A plan as an entry of plan.json, without what is measured or predicted.
[[nodiscard]] std::string compression_plan_json(const PlanFromStep& plan);

// Reads it back.
[[nodiscard]] PlanFromStep read_compression_plan(const std::string& json);

// What a checkpoint says of compression: the plan in force as such an entry, and where the run has
// several, all of them as its `history`.
[[nodiscard]] std::string plan_document(const PlanFromStep& in_force, const PlanHistory& plans);

// The plans a resumed run goes on with: those of the checkpoint where they are the config's and
// what a guard has made of them since; else the config's.
[[nodiscard]] PlanHistory resumed_plans(const PlanHistory& of_config, const std::string& document);

}  // namespace slackline
