#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/manifest.h"
#include "core/tensor/tensor.h"

namespace slackline {

// What a rank puts into a checkpoint: a logical tensor, or its rectangle of one.
struct CheckpointTensor {
  std::string name;                      // weights/wte.weight: group, then the logical name
  Tensor data;                           // a view of the elements
  std::vector<std::int64_t> start{};     // of the piece in the logical tensor; empty: all zero
  std::optional<Shape> logical{};        // the logical tensor's shape; absent: that of the piece
  std::optional<std::int64_t> worker{};  // data rank, for state that differs between them
  std::optional<LocalPlace> place{};     // of the piece in `data`; absent: the piece is all of it
  bool widens = false;                   // data is bf16, and written as f32

  // The piece's.
  [[nodiscard]] const Shape& shape() const { return place ? place->region.shape : data.shape(); }

  [[nodiscard]] DType written_type() const { return widens ? DType::f32 : data.dtype(); }

  [[nodiscard]] std::size_t bytes() const {
    return shape().num_elements() * size_of(written_type());
  }

  [[nodiscard]] const Shape& logical_shape() const { return logical ? *logical : shape(); }

  [[nodiscard]] Region region() const {
    return start.empty() ? whole_region(shape()) : Region{start, shape()};
  }
};

struct CheckpointContents {
  std::int64_t step = 0;                  // the last one completed
  std::optional<std::int64_t> updates{};  // of the optimizer; absent: there is none
  std::int64_t skips = 0;                 // skipped steps in a row up to this one
  CheckpointDocuments documents{};
  std::vector<CheckpointTensor> tensors{};
  std::map<std::string, std::string> files{};  // further files by name: tokenizer.json and the like
};

}  // namespace slackline
