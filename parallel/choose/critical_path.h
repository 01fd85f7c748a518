#pragma once

#include <map>
#include <vector>

#include "compress/codec_measurement.h"
#include "compress/compress_config.h"
#include "parallel/choose/candidates.h"
#include "parallel/choose/compression_guard.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/predict/step_cost_model.h"

namespace slackline {

// Policy critical_path: of the transfers that a step waits for, those that a codec makes shorter by
// more than it takes itself.

// Returns each candidate with each shape that it may be given, once: what a choice needs measured.
[[nodiscard]] std::vector<CandidateMessage> candidate_messages(const CompressConfig& config,
                                                               const MeshJob& job);

struct CriticalPathPlan {
  CompressionPlan plan{};          // with a reason for every class
  schedule::Seconds plain_step{};  // predicted, without compression
  schedule::Seconds step{};        // under the plan
};

// Chooses by the costs and links of a run or of a cluster (docs/compression.md, "How critical_path
// chooses"). Codecs that the costs do not know are assumed to take what their operations say, and
// to lose what is expected of them; those that were measured, or that round and are expected, to
// lose more than the guard's bound are left out. A class that a guard has changed may have the
// codec that it left, those that lose less, or none. A function of its arguments. Throws as
// cost_model() does.
[[nodiscard]] CriticalPathPlan choose_critical_path(const CompressConfig& config,
                                                    const MeshJob& job,
                                                    const StepCosts& costs,
                                                    const LinkSpeeds& links,
                                                    const GuardLimits& limits = {});

// What a run under this policy does until it has measured steps: warm-up steps are plain, the next
// ones compress what waits by what is known of bytes and links, with candidates whose error is
// known beforehand: integers of 8 bits, or a cast where links that are twice as fast would make a
// difference.
[[nodiscard]] PlanHistory plans_before_measuring(const CompressConfig& config,
                                                 const MeshJob& job,
                                                 const LinkSpeeds& links);

// Whether a history was begun by this policy.
[[nodiscard]] bool begins_critical_path(const PlanHistory& plans);

// The guard's bounds.
[[nodiscard]] std::map<schedule::Site, double> max_errors_of(const CompressConfig& config);

}  // namespace slackline
