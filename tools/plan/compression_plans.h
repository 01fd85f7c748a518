#pragma once

#include <string>

#include "parallel/choose/compression_guard.h"
#include "parallel/choose/compression_policy.h"
#include "parallel/predict/step_cost_model.h"
#include "tools/plan/plan_job.h"

namespace slackline {

// From this step on, warm-up steps apart, a plan of policy critical_path is in force that was
// chosen by what steps took.
inline constexpr std::int64_t kFirstChosenStep = 3;

// The compression plans that a run begins with: what its policy makes, or what policy `replay`
// reads from compress.plan; of critical_path by these links. Throws ConfigError where the policy or
// the file does not fit the config.
[[nodiscard]] PlanHistory compression_plans(const PlanJob& job, const LinkSpeeds& links = {});

// Returns the plans that it is expected to have in the end: with what policy critical_path chooses
// by these costs, on the rehearsal device from the first step on.
[[nodiscard]] PlanHistory expected_plans(const PlanJob& job,
                                         const StepCosts& costs,
                                         const LinkSpeeds& links);

// A plan as an entry of plan.json, without what is measured or predicted.
[[nodiscard]] std::string compression_plan_json(const PlanFromStep& plan);

// Reads it back.
[[nodiscard]] PlanFromStep read_compression_plan(const std::string& json);

// What a checkpoint says of compression: the plan in force as such an entry, all plans as its
// `history`, and what codecs were measured to lose, by which a guard decides, as `errors` (trials)
// and `sampled_errors`.
[[nodiscard]] std::string plan_document(const PlanFromStep& in_force,
                                        const PlanHistory& plans,
                                        const CodecErrors& errors);

// What a resumed run goes on with.
struct ResumedPlans {
  PlanHistory plans{};
  CodecErrors errors{};
};

// Returns the checkpoint's plans where policy critical_path made them and still holds, whatever it
// would choose now, and where they are the config's and what a guard has made of them since; else
// the config's.
[[nodiscard]] ResumedPlans resumed_plans(const PlanHistory& of_config, const std::string& document);

}  // namespace slackline
