#pragma once

#include <cstdint>
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

// What a checkpoint says of its plans.
struct CheckpointedPlans {
  std::string document{};   // empty in older ones
  std::int64_t step = 0;    // completed
  bool same_stages = true;  // the run's are cut as the checkpoint's; else plans name other ones
};

// Plans of a resumed run, with what was in force in the steps before.
struct ResumedPlans {
  StoredPlans stored{};
  bool go_on = true;  // else the config's begin with the first step that the resumed run trains
};

// Returns what a resumed run goes on with: the plans of the checkpoint where policy critical_path
// made the last ones and still holds, whatever it would choose now, and where the last ones are the
// config's and what a guard has made of them since. Else, and where codecs do not fit this layout,
// the config's begin behind the steps that are completed: those keep the plans that they had, or,
// where its classes are others, are said to be plain.
[[nodiscard]] ResumedPlans resumed_plans(const PlanHistory& of_config,
                                         const CheckpointedPlans& checkpoint,
                                         const PlanJob& job);

}  // namespace slackline
