#pragma once

#include <map>
#include <vector>

#include "compress/compress_config.h"
#include "parallel/compression_guard.h"
#include "parallel/compression_plan.h"
#include "parallel/step_cost_model.h"

namespace slackline {

// Policy critical_path: of the transfers that a step waits for, those that a codec makes shorter by
// more than it takes itself.

// What each site may be compressed by: compress.<site>.candidates, else its codec; where no site is
// set at all, a cast and 8-bit integers for messages between stages, the paper's low rank for
// backward ones, and a cast and low ranks for gradients and the tied table. Sites that are not in
// it stay plain.
[[nodiscard]] std::map<schedule::Site, std::vector<CodecSetting>> candidates_of(
    const CompressConfig& config, const MeshJob& job);

// A codec and a shape of message that it may be given to (as in CodecCost).
struct CandidateMessage {
  CodecSetting codec{};
  std::vector<std::int64_t> shape{};
  int ranks = 0;  // that add it up; 0: a boundary's

  friend bool operator==(const CandidateMessage&, const CandidateMessage&) = default;
};

// All of them, each once: what has to be measured before a plan can be chosen.
[[nodiscard]] std::vector<CandidateMessage> candidate_messages(const CompressConfig& config,
                                                               const MeshJob& job);

struct CriticalPathPlan {
  CompressionPlan plan{};          // with a reason for every class
  schedule::Seconds plain_step{};  // predicted, without compression
  schedule::Seconds step{};        // under the plan
};

// Chooses by the costs and links of a run or of a cluster (docs/compression.md, "How critical_path
// chooses"). Codecs that the costs do not know are assumed to take what their operations say. A
// class that a guard has changed may have the codec that it left, those that are expected to lose
// less, or none. A function of its arguments. Throws as cost_model() does.
[[nodiscard]] CriticalPathPlan choose_critical_path(const CompressConfig& config,
                                                    const MeshJob& job,
                                                    const StepCosts& costs,
                                                    const LinkSpeeds& links,
                                                    const GuardLimits& limits = {});

}  // namespace slackline
