#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "model/parameters.h"

namespace slackline {

// Consecutive elements of a rank's gradient buffer that travel together, and their weights too; or
// of weights that are not trained, which have no gradients.
struct GradientBucket {
  enum class Kind {
    layers,  // tables and matrices with biases: goes as soon as its layers' gradients are made
    biases,  // where they stand apart from matrices: at the end of the step
    norms,   // sums over tensor ranks come first, at the end of the step
    table,   // a tied table: its two gradients join at the end of the step
  };

  using Unit = std::pair<ModelPart, int>;  // part and layer

  Kind kind = Kind::layers;
  bool trained = true;
  std::size_t first = 0;
  std::size_t count = 0;  // gaps between parameters included
  std::vector<const Parameter*> holds{};
  std::vector<Unit> units{};  // that read its weights and make its gradients
};

// What a rank's parameters are cut by.
struct BucketRule {
  bool tied_embeddings = false;
  std::size_t bucket_bytes = 0;  // at which a bucket of layers closes; 0: each unit has its own
  bool biases_apart = false;     // as Parameters::Biases::before_norms
  // The rank's: a bucket of layers closes at the border of two, whose classes may have different
  // codecs. None: all are one.
  std::vector<ChunkSlice> chunks{};
};

// The buckets of a rank's parameters, from the last layer to the first as backward makes them, and
// behind them those of what is not trained. They point into `parameters`.
[[nodiscard]] std::vector<GradientBucket> gradient_buckets(const std::vector<Parameter>& parameters,
                                                           const BucketRule& rule);

// Returns which of the buckets holds a parameter. REQUIRES: one does.
[[nodiscard]] std::size_t bucket_of(const Parameter& parameter,
                                    const std::vector<GradientBucket>& buckets);

// Returns which of the chunks a unit belongs to; their number where it is none.
[[nodiscard]] std::ptrdiff_t chunk_of(const GradientBucket::Unit& unit,
                                      const std::vector<ChunkSlice>& chunks);

// "the embedding", "layer 3"
[[nodiscard]] std::string text_of(const GradientBucket::Unit& unit);

}  // namespace slackline
