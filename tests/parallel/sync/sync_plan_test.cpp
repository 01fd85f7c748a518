#include "parallel/sync/sync_plan.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "parallel/mesh/mesh.h"
#include "parallel/sync/rank_sync.h"
#include "tests/parallel/sync/sync_validator.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

MeshJob job(const ParallelConfig& parallel, bool tied = true) {
  return {.model = {.layers = 4,
                    .hidden = 12,
                    .heads = 4,
                    .sequence = 5,
                    .vocab = 13,
                    .ffn = 20,
                    .tie_embeddings = tied},
          .parallel = parallel,
          .micro_batch = {.B = 1, .T = 5},
          .num_micro_batches = 2 * parallel.pipeline};
}

// The plans of all ranks, with the parameters that they point into.
struct Ranks {
  explicit Ranks(const MeshJob& of) : parallel(of.parallel) {
    const Mesh mesh = make_mesh(parallel);
    for (int rank = 0; rank < mesh.size(); ++rank) {
      made.push_back(
          std::make_unique<RankSync>(of,
                                     MeshPlace{.tensor = mesh.coordinate(rank, "tensor"),
                                               .data = mesh.coordinate(rank, "data"),
                                               .pipeline = mesh.coordinate(rank, "pipeline")}));
      RankPlan small = made.back()->rank;
      small.sync.bucket_bytes = 1;  // a layer a bucket
      plans.push_back(make_sync_plan(made.back()->parameters, small));
    }
  }

  [[nodiscard]] std::vector<std::string> violations() const {
    return slackline::violations(plans, parallel);
  }

  ParallelConfig parallel;
  std::vector<std::unique_ptr<RankSync>> made{};
  std::vector<SyncPlan> plans{};
};

std::vector<ParallelConfig> layouts() {
  std::vector<ParallelConfig> list;
  for (const int tensor : {1, 2}) {
    for (const int pipeline : {1, 2, 4}) {
      for (const int data : {1, 2, 3}) {
        for (const DataStrategy strategy : {DataStrategy::replicate, DataStrategy::zero1}) {
          for (const EmbeddingSync sync : {EmbeddingSync::fused, EmbeddingSync::separate}) {
            ParallelConfig layout{.tensor = tensor,
                                  .pipeline = pipeline,
                                  .data = data,
                                  .sequence_parallel = pipeline == 2,
                                  .data_strategy = strategy,
                                  .embedding_sync = sync};
            list.push_back(layout);
            if (pipeline > 1) {
              layout.schedule = ScheduleName::zb_h1;
              list.push_back(layout);
            }
            if (pipeline == 2) {
              layout.schedule = ScheduleName::interleaved;
              layout.chunks = 2;
              list.push_back(layout);
              layout.data *= 2;  // in two groups
              layout.group = data;
              list.push_back(layout);
            }
          }
        }
      }
    }
  }
  for (const DataStrategy& strategy : all_data_strategies()) {
    for (const int pipeline : {1, 2}) {
      for (const auto& [data, group] : {std::pair{3, 3}, {4, 2}, {2, 1}}) {
        list.push_back({.tensor = 3 - pipeline,
                        .pipeline = pipeline,
                        .data = data,
                        .group = group,
                        .sequence_parallel = pipeline == 1,
                        .data_strategy = strategy});
        if (!strategy.has_groups()) {
          list.push_back(list.back());
          list.back().codes_sums = true;
        }
      }
    }
  }
  return list;
}

std::vector<std::string> texts(const SyncPlan& plan) {
  std::vector<std::string> lines;
  for (const SyncOp& op : plan.ops) {
    lines.push_back(text_of(op));
  }
  return lines;
}

}  // namespace

TEST_CASE("the plans of every layout add each gradient once and update each weight once") {
  for (const bool tied : {true, false}) {
    for (const ParallelConfig& layout : layouts()) {
      INFO("tied " << tied << " t" << layout.tensor << " p" << layout.pipeline << " d"
                   << layout.data << " groups " << layout.num_groups() << " chunks "
                   << layout.chunks);
      const std::vector<std::string> found = Ranks(job(layout, tied)).violations();
      INFO((found.empty() ? "" : found.front()));
      CHECK(found.empty());
    }
  }
}

namespace {

void require_refusals(const ParallelConfig& layout) {
  INFO(name_of(layout.data_strategy));
  const Ranks sound(job(layout));
  REQUIRE(sound.violations().empty());
  const std::size_t count = sound.plans.front().ops.size();
  for (std::size_t op = 0; op < count; ++op) {
    INFO(text_of(sound.plans.front().ops[op]));
    for (const bool doubled : {false, true}) {
      Ranks broken(job(layout));
      for (SyncPlan& plan : broken.plans) {  // all alike: the order of a group says nothing
        if (op >= plan.ops.size()) {
          continue;  // the other stage has fewer
        }
        const auto at = plan.ops.begin() + static_cast<std::ptrdiff_t>(op);
        // To gather twice is a waste, and no error.
        const bool adds = plan.ops[op].kind != SyncOp::Kind::all_gather;
        if (doubled && plan.ops[op].state == SyncOp::State::gradients && adds) {
          plan.ops.insert(at, plan.ops[op]);
        } else {
          plan.ops.erase(at);
        }
      }
      CHECK_FALSE(broken.violations().empty());
    }
  }
}

}  // namespace

TEST_CASE("a plan that lacks an op, doubles one or swaps two is refused") {
  const ParallelConfig layout{.tensor = 2,
                              .pipeline = 2,
                              .data = 2,
                              .sequence_parallel = true,
                              .data_strategy = DataStrategy::zero1,
                              .embedding_sync = EmbeddingSync::separate};
  require_refusals(layout);
  for (const char* letters : {"NNI", "NIG", "IIG", "ING", "GGG", "GIG", "IGG"}) {
    require_refusals(
        {.pipeline = 2, .data = 4, .group = 2, .data_strategy = *data_strategy_named(letters)});
  }
  for (const char* letters : {"NNN", "NNG", "NGG"}) {
    require_refusals({.pipeline = 2,
                      .data = 4,
                      .group = 2,
                      .data_strategy = *data_strategy_named(letters),
                      .codes_sums = true});
  }
  Ranks swapped(job(layout));
  std::vector<SyncOp>& ops = swapped.plans.front().ops;
  std::swap(ops[0], ops[1]);
  REQUIRE(ops[0].group == ops[1].group);
  CHECK_FALSE(swapped.violations().empty());
}

TEST_CASE("data ranks add within their group first, a table's ends before that") {
  for (const auto& [group, data_ranks] : {std::pair{0, 4}, {2, 2}}) {
    const Ranks ranks(job({.pipeline = 2, .data = 4, .group = group}));
    for (const SyncOp& op : ranks.plans.front().ops) {
      INFO(text_of(op));
      const SumOrder expected = op.group == SyncGroup::table ? SumOrder{.runs = {2, data_ranks}}
                                                             : SumOrder{.runs = {data_ranks, 1}};
      CHECK(op.order == expected);
      CHECK(op.order.fits(op.ranks));
    }
  }
}

TEST_CASE("replicate adds each bucket as its last layer is made") {
  const Ranks ranks(job({.data = 2}));
  CHECK(texts(ranks.plans.front()) ==
        std::vector<std::string>{
            "all_reduce of gradients over 2 data ranks: bucket 0, when layer 3 is made",
            "all_reduce of gradients over 2 data ranks: bucket 1, when layer 2 is made",
            "all_reduce of gradients over 2 data ranks: bucket 2, when layer 1 is made",
            "all_reduce of gradients over 2 data ranks: bucket 3, when layer 0 is made",
            "all_reduce of gradients over 2 data ranks: bucket 4, when the embedding is made",
            "all_reduce of gradients over 2 data ranks: bucket 5, when the passes have ended",
            "all_reduce of gradients over 2 data ranks: bucket 6, when the passes have ended"});
}

TEST_CASE("sums that codecs sit on go through the group, between groups and back") {
  const Ranks ranks(job({.data = 4, .group = 2, .codes_sums = true}));
  const std::vector<std::string> list = texts(ranks.plans.front());
  REQUIRE(list.size() == 19);  // three for each bucket, one for that of norms
  CHECK(std::vector(list.begin(), list.begin() + 4) ==
        std::vector<std::string>{
            "reduce_scatter of gradients over 2 group ranks: bucket 0, when layer 3 is made",
            "all_reduce of gradients over 2 across_groups ranks: bucket 0, when layer 2 is made",
            "reduce_scatter of gradients over 2 group ranks: bucket 1, when layer 2 is made",
            "all_reduce of gradients over 2 across_groups ranks: bucket 1, when layer 1 is made"});
  // No pass waits for a sum between groups.
  CHECK(list[13] ==
        "all_gather of gradients over 2 group ranks: bucket 0, when the passes have ended");
  for (const SyncOp& op : ranks.plans.front().ops) {
    INFO(text_of(op));
    CHECK(op.may_be_coded == (op.group != SyncGroup::group));
  }
}

TEST_CASE("what passes have added up in a group goes on between groups a layer later") {
  for (const char* letters : {"NIG", "IIG"}) {
    const Ranks ranks(job({.data = 4, .group = 2, .data_strategy = *data_strategy_named(letters)}));
    std::vector<std::string> across;
    for (const SyncOp& op : ranks.plans.front().ops) {
      const bool is_layers =
          ranks.plans.front().buckets[op.bucket].kind == GradientBucket::Kind::layers;
      if (op.kind == SyncOp::Kind::reduce_scatter && op.group == SyncGroup::across_groups &&
          is_layers) {
        across.push_back(text_of(op));
      }
    }
    const std::string sum = "reduce_scatter of gradients over 2 across_groups ranks: bucket ";
    CHECK(across == std::vector<std::string>{sum + "0, when layer 2 is made",
                                             sum + "1, when layer 1 is made",
                                             sum + "2, when layer 0 is made",
                                             sum + "3, when the embedding is made",
                                             sum + "4, when the passes have ended"});
  }
}

TEST_CASE("under zb_h1 head and embedding are made in the input pass, layers in the weight pass") {
  ParallelConfig layout{.pipeline = 2, .data = 2, .data_strategy = DataStrategy::zero1};
  layout.schedule = ScheduleName::zb_h1;
  const Ranks ranks(job(layout, false));
  CHECK(texts(ranks.plans.front()) ==
        std::vector<std::string>{
            "reduce_scatter of gradients over 2 data ranks: bucket 2, when the embedding is made",
            "reduce_scatter of gradients over 2 data ranks: bucket 0, when layer 1 is made",
            "reduce_scatter of gradients over 2 data ranks: bucket 1, when layer 0 is made",
            "reduce_scatter of gradients over 2 data ranks: bucket 3, when the passes have ended",
            "all_gather of weights over 2 data ranks: bucket 3, when weights are updated",
            "all_gather of weights over 2 data ranks: bucket 2, when weights are updated",
            "all_gather of weights over 2 data ranks: bucket 1, when weights are updated",
            "all_gather of weights over 2 data ranks: bucket 0, when weights are updated"});
}

}  // namespace slackline
