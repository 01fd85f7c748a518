#include "parallel/mesh/stage_split.h"

#include <algorithm>

#include "core/check.h"
#include "model/cost/part_flops.h"

namespace slackline {

namespace {

// Relative work of the parts: the operations of a token's forward pass, the logits included.
struct Work {
  explicit Work(const ModelConfig& model)
      : layer(layer_flops(model).forward),
        embedding(embedding_flops(model).forward),
        head(product_flops(model, WeightProduct::logits)) {}

  double layer;
  double embedding;
  double head;
};

// Layers of each stage when none may cost more than `limit`, filled from the end (the head's
// stage first) and every stage keeping at least one; empty when they do not fit.
std::vector<int> fill(int layers, int stages, const Work& work, double limit) {
  std::vector<int> counts(static_cast<std::size_t>(stages), 0);
  int left = layers;
  for (int stage = stages - 1; stage >= 0; --stage) {
    const double fixed =
        (stage == 0 ? work.embedding : 0.0) + (stage == stages - 1 ? work.head : 0.0);
    const int room = static_cast<int>((limit - fixed) / work.layer * (1.0 + 1e-12));
    const int count = std::min(std::max(1, room), left - stage);
    if (room < 1 || count < 1) {
      return {};
    }
    counts[static_cast<std::size_t>(stage)] = count;
    left -= count;
  }
  return left == 0 ? counts : std::vector<int>{};
}

// Where stages could trade a layer without passing the limit, early ones take it.
std::vector<int> even_out(std::vector<int> counts, const Work& work) {
  const std::size_t last = counts.size() - 1;
  const auto cost = [&](std::size_t stage) {
    return counts[stage] * work.layer + (stage == 0 ? work.embedding : 0.0) +
           (stage == last ? work.head : 0.0);
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t from = counts.size(); from-- > 0;) {
      if (counts[from] == 1) {
        continue;
      }
      const auto least = [&] {
        std::size_t best = 0;
        for (std::size_t stage = 1; stage < counts.size(); ++stage) {
          best = cost(stage) < cost(best) ? stage : best;
        }
        return best;
      }();
      if (cost(least) + work.layer < cost(from)) {
        --counts[from];
        ++counts[least];
        moved = true;
      }
    }
  }
  return counts;
}

std::vector<int> balanced_counts(const ModelConfig& model, int stages) {
  const Work work(model);
  // The limit is one of the sums that a stage can cost.
  std::vector<double> limits;
  for (int count = 1; count <= model.layers; ++count) {
    for (const double fixed :
         {0.0, work.embedding, work.head, stages == 1 ? work.embedding + work.head : work.head}) {
      limits.push_back(count * work.layer + fixed);
    }
  }
  std::sort(limits.begin(), limits.end());
  for (const double limit : limits) {
    if (std::vector<int> counts = fill(model.layers, stages, work, limit); !counts.empty()) {
      return even_out(counts, work);
    }
  }
  SL_CHECK(false, "no split of " + std::to_string(model.layers) + " layers");
  return {};
}

}  // namespace

std::vector<ChunkSlice> split_layers(const ModelConfig& model, const ParallelConfig& config) {
  const std::vector<int> counts = config.stage_layers.empty()
                                      ? balanced_counts(model, config.num_virtual_stages())
                                      : config.stage_layers;
  std::vector<ChunkSlice> stages;
  int layer = 0;
  for (const int count : counts) {
    stages.push_back({.first_layer = layer, .last_layer = layer + count});
    layer += count;
  }
  stages.front().embedding = true;
  stages.back().head = true;
  return stages;
}

std::vector<ChunkSlice> chunks_of_rank(const std::vector<ChunkSlice>& stages,
                                       int pipeline_rank,
                                       int num_pipeline_ranks) {
  std::vector<ChunkSlice> chunks;
  for (std::size_t stage = static_cast<std::size_t>(pipeline_rank); stage < stages.size();
       stage += static_cast<std::size_t>(num_pipeline_ranks)) {
    chunks.push_back(stages[stage]);
  }
  return chunks;
}

}  // namespace slackline
