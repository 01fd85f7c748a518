#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/manifest.h"
#include "core/tensor.h"

namespace slackline {

// What a rank puts into a checkpoint: a logical tensor, or its rectangle of one.
struct CheckpointTensor {
  std::string name;                      // weights/wte.weight: group, then the logical name
  Tensor data;                           // the piece's elements, a view
  std::vector<std::int64_t> start{};     // of the piece in the logical tensor; empty: all zero
  std::optional<Shape> logical{};        // the logical tensor's shape; absent: that of `data`
  std::optional<std::int64_t> worker{};  // data rank, for state that differs between them

  [[nodiscard]] const Shape& logical_shape() const { return logical ? *logical : data.shape(); }

  [[nodiscard]] Region region() const {
    return start.empty() ? whole_region(data.shape()) : Region{start, data.shape()};
  }
};

struct CheckpointContents {
  std::int64_t step = 0;  // the last one completed
  CheckpointDocuments documents{};
  std::vector<CheckpointTensor> tensors{};
  std::map<std::string, std::string> files{};  // further files by name: tokenizer.json and the like
};

}  // namespace slackline
