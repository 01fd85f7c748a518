#pragma once

#include <vector>

#include "model/model_slice.h"
#include "parallel/mesh/parallel_config.h"

namespace slackline {

// The chunk of every virtual stage, in order: parallel.stage_layers, or layers spread so that the
// largest stage's work is least, embedding and head counted. Work is measured in floating-point
// operations of a token.
[[nodiscard]] std::vector<ChunkSlice> split_layers(const ModelConfig& model,
                                                   const ParallelConfig& config);

// The chunks of one pipeline rank: virtual stages i, i + p, i + 2 p, ...
[[nodiscard]] std::vector<ChunkSlice> chunks_of_rank(const std::vector<ChunkSlice>& stages,
                                                     int pipeline_rank,
                                                     int num_pipeline_ranks);

}  // namespace slackline
