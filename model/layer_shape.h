#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "model/model_config.h"
#include "model/tensor_sum.h"

namespace slackline {

// What one rank computes of a layer: one micro-batch, and its share of the tensor axis.
struct LayerShape {
  BatchShape batch{};
  DType dtype = DType::f32;
  TensorShare share{};

  [[nodiscard]] std::int64_t num_tokens() const { return batch.num_tokens(); }  // N

  // Rows of the residual stream that this rank owns, n in shapes: N, or N / size.
  [[nodiscard]] std::int64_t num_rows() const { return share.num_rows(num_tokens()); }

  [[nodiscard]] int heads(const ModelConfig& config) const { return config.heads / share.size; }

  // Columns of Q, of K, of V and of the attention's output.
  [[nodiscard]] std::int64_t width(const ModelConfig& config) const {
    return config.hidden / share.size;
  }

  [[nodiscard]] std::int64_t ffn(const ModelConfig& config) const {
    return config.ffn / share.size;
  }

  [[nodiscard]] DType partial() const { return share.partial(dtype); }

  // Scratch for all N rows: none when rows are not cut.
  [[nodiscard]] std::size_t whole_bytes(std::int64_t columns) const {
    return share.sequence_parallel ? Arena::aligned_bytes(dtype, {num_tokens(), columns}) : 0;
  }
};

}  // namespace slackline
