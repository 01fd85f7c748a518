#pragma once

#include <cstddef>
#include <optional>

#include "compress/codec_setting.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/plan/cost_model.h"
#include "parallel/predict/step_cost_model.h"

namespace slackline {

// A round of workers that train apart, as far as it travels (docs/outer.md).
struct OuterRound {
  int workers = 1;
  std::size_t bytes = 0;                       // sent by all ranks of all workers
  std::optional<schedule::Seconds> seconds{};  // from sending to arrival; absent: no links known
};

// `job` is one worker's, `codec` what rounds are compressed with. Links have to be of all workers'
// ranks; those of fewer count as unknown. Seconds are those of links: what codecs take is not in
// them.
[[nodiscard]] OuterRound outer_round(const MeshJob& job,
                                     int workers,
                                     const std::optional<CodecSetting>& codec,
                                     const LinkSpeeds& links);

}  // namespace slackline
