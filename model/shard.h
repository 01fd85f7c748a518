#pragma once

#include <vector>

#include "core/checkpoint/region.h"
#include "core/comm/communicator.h"
#include "model/model_config.h"
#include "model/parameter_table.h"

namespace slackline {

// How tensor ranks share a parameter. A rank's local tensor is a dense tensor of its own; its
// parts say which rectangles of the logical tensor lie where in it.
//
//   rows         this rank's rows                            one part
//   columns      this rank's columns                         one part
//   qkv_columns  this rank's heads of Q, K and V, in a row   three parts
//   none         all of it                                   one part
//
// Which are this rank's, TensorShare says (first_of and num_of).

// The same elements in coordinates of the logical and of the local tensor: regions of one shape.
struct ShardPart {
  Region logical;
  Region local;
};

struct Shard {
  Shape shape;                     // of the local tensor
  std::vector<ShardPart> parts{};  // cover it once; without those that have no element
};

// REQUIRES: 0 <= rank < size; heads divide by size.
[[nodiscard]] Shard shard_of(const ParameterSpec& spec,
                             const ModelConfig& config,
                             int rank,
                             int size);

// The rectangles that make up elements [range.begin, range.end) of the local tensor in row-major
// order, as an optimizer that is sharded over data ranks holds them: a first row's end, whole
// rows and a last row's beginning, each with every part it touches. Coordinates are those of the
// whole local tensor. REQUIRES: the range lies inside it; it has one or two dimensions.
[[nodiscard]] std::vector<ShardPart> parts_of_range(const Shard& shard, Slice range);

}  // namespace slackline
