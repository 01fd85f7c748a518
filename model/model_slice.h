#pragma once

#include <algorithm>
#include <vector>

#include "model/parameter_table.h"

namespace slackline {

// Consecutive parts of the model that run as one: a virtual pipeline stage.
struct ChunkSlice {
  int first_layer = 0;
  int last_layer = 0;      // one past the end; may equal first_layer
  bool embedding = false;  // token and position tables, before the layers
  bool head = false;       // final norm, output table and loss, after them

  bool operator==(const ChunkSlice&) const = default;

  [[nodiscard]] int num_layers() const { return last_layer - first_layer; }

  // Whether a part, or a layer, is here. A tied table belongs to the embedding.
  [[nodiscard]] bool has_part(ModelPart part, int layer) const;
};

[[nodiscard]] inline ChunkSlice whole_chunk(const ModelConfig& config) {
  return {.first_layer = 0, .last_layer = config.layers, .embedding = true, .head = true};
}

// What one rank holds of the model: some chunks, and of each tensor the part of its tensor rank.
struct ModelSlice {
  int tensor_rank = 0;
  int tensor_size = 1;
  std::vector<ChunkSlice> chunks{};

  [[nodiscard]] bool embedding() const {
    return std::any_of(chunks.begin(), chunks.end(), [](const auto& c) { return c.embedding; });
  }

  [[nodiscard]] bool head() const {
    return std::any_of(chunks.begin(), chunks.end(), [](const auto& c) { return c.head; });
  }

  // Returns the layers of all chunks, ascending.
  [[nodiscard]] std::vector<int> layers() const;

  // Whether this rank has (its part of) a parameter. A tied table is held by both ends.
  [[nodiscard]] bool holds(const ParameterSpec& spec, const ModelConfig& config) const;
};

[[nodiscard]] inline ModelSlice whole_model(const ModelConfig& config) {
  return {.chunks = {whole_chunk(config)}};
}

}  // namespace slackline
