#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/mesh/stage_split.h"
#include "parallel/step/groups.h"
#include "parallel/sync/sync_plan.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

ModelConfig model(bool tied) {
  return {.layers = 4,
          .hidden = 12,
          .heads = 4,
          .sequence = 5,
          .vocab = 13,
          .ffn = 20,
          .tie_embeddings = tied};
}

std::vector<Parameter> parameters_of(const ModelConfig& config,
                                     const ParallelConfig& parallel,
                                     int tensor,
                                     int pipeline) {
  return Parameters::describe(
      config,
      {.tensor_rank = tensor,
       .tensor_size = parallel.tensor,
       .chunks = chunks_of_rank(split_layers(config, parallel), pipeline, parallel.pipeline)});
}

RankPlan rank_plan(const ModelConfig& config,
                   const ParallelConfig& parallel,
                   const MeshPlace& place,
                   std::size_t bucket_bytes) {
  RankPlan plan = make_rank_plan({.model = config,
                                  .parallel = parallel,
                                  .micro_batch = {.B = 1, .T = config.sequence},
                                  .num_micro_batches = parallel.pipeline},
                                 place);
  plan.sync.bucket_bytes = bucket_bytes;
  return plan;
}

// How often each element of each logical tensor is counted and saved, over all ranks.
struct Uses {
  explicit Uses(const ModelConfig& config) {
    for (const ParameterSpec& spec : parameter_table(config)) {
      counted[spec.name].resize(spec.shape.num_elements());
      saved[spec.name].resize(spec.shape.num_elements());
    }
  }

  static void add(const OptimizerPiece& piece, std::map<std::string, std::vector<int>>& all) {
    std::vector<int>& uses = all.at(piece.parameter->spec.name);
    const Shape& shape = piece.parameter->spec.shape;
    const std::int64_t columns = shape[-1];
    for (const ShardPart& part : parts_of_range(piece.parameter->shard, piece.range)) {
      const Region& region = part.logical;
      const bool has_rows = shape.rank() == 2;
      const std::int64_t rows = has_rows ? region.shape[0] : 1;
      const std::int64_t first_row = has_rows ? region.start[0] : 0;
      for (std::int64_t row = first_row; row < first_row + rows; ++row) {
        for (std::int64_t i = 0; i < region.shape[-1]; ++i) {
          ++uses[static_cast<std::size_t>(row * columns + region.start.back() + i)];
        }
      }
    }
  }

  [[nodiscard]] static bool all_once(const std::map<std::string, std::vector<int>>& uses) {
    return std::all_of(uses.begin(), uses.end(), [](const auto& tensor) {
      return std::all_of(
          tensor.second.begin(), tensor.second.end(), [](int count) { return count == 1; });
    });
  }

  std::map<std::string, std::vector<int>> counted;
  std::map<std::string, std::vector<int>> saved;
};

Uses uses_of(const ModelConfig& config, const ParallelConfig& parallel, std::size_t bucket_bytes) {
  Uses uses(config);
  const Mesh mesh = make_mesh(parallel);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const int tensor = mesh.coordinate(rank, "tensor");
    const int pipeline = mesh.coordinate(rank, "pipeline");
    const std::vector<Parameter> parameters = parameters_of(config, parallel, tensor, pipeline);
    const SyncPlan plan = make_sync_plan(
        parameters,
        rank_plan(config,
                  parallel,
                  {.tensor = tensor, .data = mesh.coordinate(rank, "data"), .pipeline = pipeline},
                  bucket_bytes));
    for (const OptimizerPiece& piece : plan.owned) {
      if (piece.counted) {
        Uses::add(piece, uses.counted);
      }
      if (piece.saved) {
        Uses::add(piece, uses.saved);
      }
    }
  }
  return uses;
}

template <typename Visit>
void for_every_layout(Visit visit) {
  for (const int tensor : {1, 2, 4}) {
    for (const int pipeline : {1, 2, 3, 4}) {
      for (const int data : {1, 2, 3, 5}) {
        for (const DataStrategy strategy : {DataStrategy::replicate, DataStrategy::zero1}) {
          for (const EmbeddingSync sync : {EmbeddingSync::fused, EmbeddingSync::separate}) {
            visit(ParallelConfig{.tensor = tensor,
                                 .pipeline = pipeline,
                                 .data = data,
                                 .data_strategy = strategy,
                                 .embedding_sync = sync});
          }
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("each element is counted once and saved once over all ranks of any layout") {
  for (const bool tied : {true, false}) {
    for_every_layout([tied](const ParallelConfig& parallel) {
      const Uses uses = uses_of(model(tied), parallel, 4096);
      INFO("tied " << tied << " t" << parallel.tensor << " p" << parallel.pipeline << " d"
                   << parallel.data << " zero1 " << (parallel.data_strategy == DataStrategy::zero1)
                   << " fused " << (parallel.embedding_sync == EmbeddingSync::fused));
      CHECK(Uses::all_once(uses.counted));
      CHECK(Uses::all_once(uses.saved));
    });
  }
}

TEST_CASE("buckets are ranges that cover the gradient buffer once") {
  for (const bool tied : {true, false}) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{1} << 24U}) {
      const std::vector<Parameter> parameters = parameters_of(model(tied), {}, 0, 0);
      std::vector<std::pair<std::size_t, std::size_t>> ranges;
      std::size_t held = 0;
      const auto buckets =
          gradient_buckets(parameters, {.tied_embeddings = tied, .bucket_bytes = bytes});
      for (const GradientBucket& bucket : buckets) {
        ranges.emplace_back(bucket.first, bucket.first + bucket.count);
        held += bucket.holds.size();
        for (const Parameter* parameter : bucket.holds) {
          CHECK(parameter->first_element >= bucket.first);
          CHECK(parameter->first_element + parameter->shard.shape.num_elements() <=
                bucket.first + bucket.count);
        }
      }
      std::sort(ranges.begin(), ranges.end());
      std::size_t end = 0;
      for (const auto& [first, last] : ranges) {
        CHECK(first == end);
        end = last;
      }
      CHECK(held == parameters.size());
    }
  }
}

TEST_CASE("a bucket closes when it is full, and a layer stays together") {
  const std::vector<Parameter> parameters = parameters_of(model(false), {}, 0, 0);
  const auto buckets = gradient_buckets(parameters, {.bucket_bytes = 1});
  // Head, four layers, embedding, then the norms.
  REQUIRE(buckets.size() == 7);
  CHECK(buckets[0].units == std::vector<GradientBucket::Unit>{{ModelPart::head, -1}});
  for (int layer = 0; layer < 4; ++layer) {
    const GradientBucket& bucket = buckets[static_cast<std::size_t>(4 - layer)];
    CHECK(bucket.units == std::vector<GradientBucket::Unit>{{ModelPart::layer, layer}});
    CHECK(bucket.holds.size() == 8);
  }
  CHECK(buckets[5].units == std::vector<GradientBucket::Unit>{{ModelPart::embedding, -1}});
  CHECK(buckets[6].kind == GradientBucket::Kind::norms);
  CHECK(gradient_buckets(parameters, {.bucket_bytes = std::size_t{1} << 24U}).size() == 2);
}

TEST_CASE("a bucket closes at the border of two chunks, whose classes may differ in their codec") {
  const std::vector<Parameter> parameters = parameters_of(model(false), {}, 0, 0);
  const auto buckets =
      gradient_buckets(parameters,
                       {.bucket_bytes = std::size_t{1} << 24U,
                        .chunks = {{.first_layer = 0, .last_layer = 1, .embedding = true},
                                   {.first_layer = 1, .last_layer = 4, .head = true}}});
  using Units = std::vector<GradientBucket::Unit>;
  REQUIRE(buckets.size() == 3);
  CHECK(buckets[0].units == Units{{ModelPart::head, -1},
                                  {ModelPart::layer, 3},
                                  {ModelPart::layer, 2},
                                  {ModelPart::layer, 1}});
  CHECK(buckets[1].units == Units{{ModelPart::layer, 0}, {ModelPart::embedding, -1}});
  CHECK(buckets[2].kind == GradientBucket::Kind::norms);
}

TEST_CASE("a tied table has a bucket of its own") {
  const std::vector<Parameter> parameters = parameters_of(model(true), {}, 0, 0);
  const auto buckets = gradient_buckets(
      parameters, {.tied_embeddings = true, .bucket_bytes = std::size_t{1} << 24U});
  REQUIRE(buckets.size() == 3);
  CHECK(buckets[2].kind == GradientBucket::Kind::table);
  REQUIRE(buckets[2].holds.size() == 1);
  CHECK(buckets[2].holds[0]->spec.name == "wte.weight");
}

TEST_CASE("under zero1 data ranks have pieces of even size") {
  const std::vector<Parameter> parameters = parameters_of(model(true), {}, 0, 0);
  std::vector<std::size_t> sizes;
  const ParallelConfig parallel{.data = 4, .data_strategy = DataStrategy::zero1};
  for (int rank = 0; rank < 4; ++rank) {
    const SyncPlan plan = make_sync_plan(
        parameters, rank_plan(model(true), parallel, {.data = rank}, std::size_t{1} << 24U));
    std::size_t elements = 0;
    for (const OptimizerPiece& piece : plan.owned) {
      elements += piece.range.count();
    }
    sizes.push_back(elements);
  }
  // Gaps of up to 15 elements a parameter are nobody's to update.
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  CHECK(*most - *least <= 15 * parameters.size());
}

}  // namespace slackline
