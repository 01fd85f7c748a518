#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"
#include "model/parameters.h"
#include "parallel/mesh/parallel_config.h"

namespace slackline {

// Consecutive elements of a rank's gradient buffer that travel together, and their weights too.
struct GradientBucket {
  enum class Kind {
    layers,  // tables and matrices with biases: goes as soon as its layers' gradients are made
    norms,   // sums over tensor ranks come first, at the end of the step
    table,   // a tied table: its two gradients join at the end of the step
  };

  using Unit = std::pair<ModelPart, int>;  // part and layer

  Kind kind = Kind::layers;
  std::size_t first = 0;
  std::size_t count = 0;  // gaps between parameters included
  std::vector<const Parameter*> holds{};
  std::vector<Unit> units{};  // that read its weights and make its gradients
};

// The buckets of a rank's parameters, from the last layer to the first as backward makes them; a
// bucket of layers closes when it holds `bucket_bytes`. They point into `parameters`.
[[nodiscard]] std::vector<GradientBucket> gradient_buckets(const std::vector<Parameter>& parameters,
                                                           bool tied_embeddings,
                                                           std::size_t bucket_bytes);

// What one rank's optimizer updates of one parameter: all elements of its local tensor, or those
// that fall to this rank under zero1.
struct OptimizerPiece {
  const Parameter* parameter = nullptr;
  Slice range{};         // elements of the local tensor
  bool counted = false;  // enters the global gradient norm here: once per element over all ranks
  bool saved = false;    // enters checkpoints here: likewise
};

// Who reduces with whom, as far as pieces depend on it.
struct ReductionPlace {
  DataStrategy strategy = DataStrategy::replicate;
  int tensor_rank = 0;
  int data_rank = 0;
  int data_size = 1;
  bool fused_table = false;  // a tied table's two copies are reduced by one call
  bool first_copy = true;    // this rank's copy of a tied table is the first stage's
};

// In the order of `parameters`, into which they point.
[[nodiscard]] std::vector<OptimizerPiece> optimizer_pieces(
    const std::vector<Parameter>& parameters,
    const std::vector<GradientBucket>& buckets,
    const ReductionPlace& place);

}  // namespace slackline
