#pragma once

#include <string>

#include "parallel/plan/compression_plan_json.h"
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

// Throws ConfigError where the cluster of a file has fewer devices than the job has ranks.
void require_fits(const Cluster& cluster, const std::string& path, const PlanJob& job);

// Reads a cost file. Throws ConfigError where it does not cover the job's layout.
[[nodiscard]] StepCosts fitting_costs(const std::string& path, const PlanJob& job);

// Throws ConfigError where what a job compresses fits none of the layouts that its config leaves
// open, and where files of links and costs that it names are none or do not fit it.
void require_runnable(const PlanJob& job);

// Returns the plans that it is expected to have in the end: with what policy critical_path chooses
// by these costs, on the rehearsal device from the first step on.
[[nodiscard]] PlanHistory expected_plans(const PlanJob& job,
                                         const StepCosts& costs,
                                         const LinkSpeeds& links);

// Returns what a resumed run goes on with: the plans of the checkpoint's document where policy
// critical_path made them and still holds, whatever it would choose now, and where they are the
// config's and what a guard has made of them since; else, and where their codecs do not fit this
// layout, the config's.
[[nodiscard]] StoredPlans resumed_plans(const PlanHistory& of_config,
                                        const std::string& document,
                                        const PlanJob& job);

}  // namespace slackline
