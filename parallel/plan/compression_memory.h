#pragma once

#include <cstddef>

#include "parallel/mesh/rank_plan.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/sync/rank_sync.h"

namespace slackline {

// What compression takes on one rank, the most of any plan of the run.
struct CompressionMemory {
  std::size_t state = 0;      // residuals and factors, all copies
  std::size_t messages = 0;   // frames and packed gradients
  std::size_t workspace = 0;  // of the codecs' stream
  std::size_t saved = 0;      // of the state, in this rank's part of a checkpoint

  [[nodiscard]] std::size_t total() const { return state + messages + workspace; }

  CompressionMemory& operator+=(const CompressionMemory& other);
};

// Nothing is allocated. A rank that keeps state beside steps that may not count has two copies.
[[nodiscard]] CompressionMemory compression_memory(const MeshJob& job,
                                                   const RankSync& rank,
                                                   const PlanHistory& plans,
                                                   const Workers& workers,
                                                   int copies_of_state = 1);

// Counts compressed rounds, on a rank of one of `num_workers` workers.
[[nodiscard]] CompressionMemory round_memory(const RankSync& rank,
                                             int num_workers,
                                             const CodecSetting& setting,
                                             const Workers& workers);

}  // namespace slackline
