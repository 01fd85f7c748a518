#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/tensor/tensor.h"
#include "model/parameters.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// One tensor of those that a sum over ranks adds up: the gradient of a parameter, or of some
// elements of it. All elements that the sum works on are a row of memory, in which those of the
// part begin at `first`. Points to the parameter.
struct SummedPart {
  const Parameter* parameter = nullptr;
  Slice elements{};       // of the parameter's local tensor
  Shape shape{};          // codecs take what has two dimensions as a matrix
  std::size_t first = 0;  // of the elements, in the row
  bool is_part = false;   // stands for itself, whether or not it is all of the parameter
  bool counted = false;   // on one of the tensor ranks that hold it: for samples and checkpoints

  // Returns the parameter's name; a part's has the elements behind it.
  [[nodiscard]] std::string name() const;

  // Second moments of a whole parameter, where the rank has them; else empty.
  [[nodiscard]] Tensor moments() const { return is_part ? Tensor() : parameter->second_moment; }

  // Returns its view of the row.
  [[nodiscard]] Tensor of(const Tensor& row) const {
    return part_of(row, {first, first + elements.count()}).reshaped(shape);
  }

  friend bool operator==(const SummedPart&, const SummedPart&) = default;
};

// Returns what one sum of a bucket's gradients adds up. Where it works on all of the bucket's
// elements these are the bucket's parameters. Where ranks share them out they are parts of this
// rank's range: whole rows of matrices, which codecs take like matrices, and as plain rows what it
// has of the rows that it begins and ends in, and of vectors.
[[nodiscard]] std::vector<SummedPart> summed_parts(const SyncOp& op,
                                                   const SyncPlan& plan,
                                                   const RankPlan& rank);

[[nodiscard]] std::size_t elements_of(const std::vector<SummedPart>& parts);

}  // namespace slackline
