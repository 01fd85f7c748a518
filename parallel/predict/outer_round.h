#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "compress/codec_setting.h"
#include "compress/compress_config.h"
#include "core/comm/links/cluster.h"
#include "optim/outer_config.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/plan/cost_model.h"
#include "parallel/plan/step_costs.h"
#include "parallel/predict/step_cost_model.h"
#include "parallel/sync/rank_sync.h"

namespace slackline {

// A round of workers that train apart, as far as it travels (docs/outer.md).
struct OuterRound {
  int workers = 1;
  std::size_t bytes = 0;                       // sent by all ranks of all workers
  std::optional<schedule::Seconds> seconds{};  // from sending to arrival; absent: no links known
  schedule::Seconds coding{};                  // of them; 0 where costs are not given
};

// Says how it travels: differences, plain or coded, or end points whose anchors are moved on
// the way.
struct RoundKind {
  std::optional<CodecSetting> codec{};
  bool updates_apart = false;  // OuterConfig::updates_apart
};

// Returns the bytes that sums of a round receive into on a rank beside its tensors, as many at once
// as their window lets through (SumWindow).
[[nodiscard]] std::size_t round_arriving_bytes(const RankSync& rank,
                                               int workers,
                                               const RoundKind& kind);

// Returns the bytes that all ranks of all workers send for each of so many fragments of the model
// (fragments_of).
[[nodiscard]] std::vector<std::size_t> fragment_bytes(const MeshJob& job,
                                                      int workers,
                                                      const RoundKind& kind,
                                                      int fragments);

[[nodiscard]] RoundKind round_kind(const OuterConfig& outer, const CompressConfig& compress);

// `job` is one worker's. Links have to be of all workers' ranks; those of fewer count as unknown.
// Seconds are those of links, and of codecs before and behind them where there are `costs`, as
// measured or assumed; what updates take is not in them.
[[nodiscard]] OuterRound outer_round(const MeshJob& job,
                                     int workers,
                                     const RoundKind& kind,
                                     const LinkSpeeds& links,
                                     const StepCosts* costs = nullptr);

}  // namespace slackline
