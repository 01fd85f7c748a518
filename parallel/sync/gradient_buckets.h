#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "model/parameters.h"

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

// "the embedding", "layer 3"
[[nodiscard]] std::string text_of(const GradientBucket::Unit& unit);

}  // namespace slackline
