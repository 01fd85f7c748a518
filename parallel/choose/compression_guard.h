#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallel/mesh/rank_plan.h"
#include "parallel/plan/codec_errors.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/plan/compression_quality.h"

namespace slackline {

// A sampled step's outcome is known to all ranks two steps later, so that this many later a plan
// may change: the same step whether a checkpoint comes between or not.
inline constexpr std::int64_t kStepsToChange = 3;

struct GuardRule {
  std::map<schedule::Site, double> max_error{};  // a site that is not in it is not judged
  // The codecs of a site: the next one is that which sends least of those that lose less, and no
  // more than the bound as far as that was measured. A site that is not in it has its codec
  // tightened: the same with the next larger message (CodecTraits::finer), if there is one.
  std::map<schedule::Site, std::vector<CodecSetting>> candidates{};
  CodecErrors errors{};
};

// The next plan where the error of a class is above the rule's or not a number: another codec, or
// none where there is no next one that would shrink what the class sends.
struct GuardedPlan {
  PlanFromStep plan{};
  std::vector<std::string> changes{};  // a sentence each: what, where, from when and why
};

// The codec that a guard has left to each class that it changed; nothing where it has turned it
// off. What is chosen afterwards is to lose no more.
using GuardLimits = std::map<schedule::TransferClass, std::optional<CodecSetting>>;

[[nodiscard]] GuardLimits guard_limits(const PlanHistory& plans);

// `found` was measured in `step`. Absent where nothing changes; a class whose codec has changed
// since that step waits for the next sample. Comes into force kStepsToChange steps later, and
// behind the last plan.
[[nodiscard]] std::optional<GuardedPlan> guarded_plan(const MeshJob& job,
                                                      const PlanHistory& plans,
                                                      std::int64_t step,
                                                      const std::vector<ClassQuality>& found,
                                                      const GuardRule& rule);

}  // namespace slackline
