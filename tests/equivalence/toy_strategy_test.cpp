// A strategy of the data axis is a sync plan: ones that no generator of the product makes are
// proven, counted in bytes and run, and give the weights of replicate.

#include <string>
#include <utility>
#include <vector>

#include "core/comm/world.h"
#include "parallel/mesh/mesh.h"
#include "tests/equivalence/distance.h"
#include "tests/equivalence/layouts.h"
#include "tests/parallel/sync/sync_validator.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

using Generator = SyncPlan (*)(const std::vector<Parameter>& parameters, const RankPlan& rank);

SyncPlan plan_of(const DataStrategy& strategy,
                 const std::vector<Parameter>& parameters,
                 const RankPlan& rank) {
  RankPlan changed = rank;
  changed.sync.strategy = strategy;
  return make_sync_plan(parameters, changed);
}

// Each rank adds up its slice of every bucket, and gathers the others' before it updates all.
SyncPlan gathered_sums(const std::vector<Parameter>& parameters, const RankPlan& rank) {
  SyncPlan plan = plan_of(DataStrategy::replicate, parameters, rank);
  std::vector<SyncOp> gathers;
  for (SyncOp& op : plan.ops) {
    if (op.may_be_coded) {
      op.kind = SyncOp::Kind::reduce_scatter;
      gathers.push_back({.kind = SyncOp::Kind::all_gather,
                         .group = op.group,
                         .ranks = op.ranks,
                         .rank = op.rank,
                         .bucket = op.bucket,
                         .range = op.range,
                         .begin = SyncOp::Begin::passes_end});
    }
  }
  plan.ops.insert(plan.ops.end(), gathers.begin(), gathers.end());
  return plan;
}

// Each rank has all sums, but updates its slice and gathers the others' weights.
SyncPlan shared_update(const std::vector<Parameter>& parameters, const RankPlan& rank) {
  SyncPlan plan = plan_of(DataStrategy::zero1, parameters, rank);
  for (SyncOp& op : plan.ops) {
    if (op.may_be_coded) {
      op.kind = SyncOp::Kind::all_reduce;
    }
  }
  return plan;
}

constexpr std::pair<const char*, Generator> kToys[] = {{"gathered sums", gathered_sums},
                                                       {"shared update", shared_update}};

// Up to eight ranks, with two or more data ranks.
std::vector<Layout> layouts() {
  std::vector<Layout> list;
  for (const Layout& layout : plain_layouts()) {
    if (layout.run.parallel.data > 1) {
      list.push_back(layout);
      list.back().run.steps = 2;
      list.back().run.parallel.sequence_parallel = layout.run.parallel.tensor > 1;
      list.back().run.parallel.embedding_sync =
          layout.run.parallel.data > 2 ? EmbeddingSync::separate : EmbeddingSync::fused;
    }
  }
  return list;
}

// The plans of all ranks of a job, with the parameters that they point into.
struct Ranks {
  Ranks(const MeshJob& job, Generator generate) {
    const Mesh mesh = make_mesh(job.parallel);
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const RankPlan plan = make_rank_plan(job,
                                           {.tensor = mesh.coordinate(rank, "tensor"),
                                            .data = mesh.coordinate(rank, "data"),
                                            .pipeline = mesh.coordinate(rank, "pipeline")});
      parameters.push_back(Parameters::describe(job.model, plan.slice));
      plans.push_back(generate(parameters.back(), plan));
    }
  }

  std::vector<std::vector<Parameter>> parameters{};
  std::vector<SyncPlan> plans{};
};

// What a plan says that its rank sends to data ranks in a step.
std::size_t planned_bytes(const SyncPlan& plan) {
  std::size_t bytes = 0;
  for (const SyncOp& op : plan.ops) {
    if (op.group == SyncGroup::data) {
      bytes += bytes_sent_by(plain_call(op, plan), op.rank, op.ranks);
    }
  }
  return bytes;
}

// What each rank sends to data ranks in a step.
std::vector<std::size_t> sent_bytes(const MeshRun& run) {
  std::vector<std::size_t> sent(static_cast<std::size_t>(run.parallel.num_ranks()));
  run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
    Groups groups(world, run.parallel, run.model.tie_embeddings);
    MeshModel model(run.options(), groups);
    model.initialize(kSeed);
    const std::size_t before = groups.data->bytes_sent();
    RankBatches batches(run, model, 1);
    const StepFacts facts = model.make_gradients(batches.micro_batches());
    model.update(kLearningRate, facts.gradient_norm);
    model.finish_gather();
    sent[static_cast<std::size_t>(world.rank())] = groups.data->bytes_sent() - before;
  });
  return sent;
}

}  // namespace

TEST_CASE("the validator proves sync plans that no strategy makes") {
  for (const auto& [name, generate] : kToys) {
    for (const Layout& layout : layouts()) {
      INFO(name << ", " << layout.name);
      const Ranks ranks(layout.run.options().job, generate);
      CHECK(violations(ranks.plans, layout.run.parallel).empty());
    }
  }
}

TEST_CASE("a sync plan is refused where ranks update elements whose sums they do not have") {
  for (const Layout& layout : layouts()) {
    INFO(layout.name);
    Ranks ranks(layout.run.options().job, gathered_sums);
    for (SyncPlan& plan : ranks.plans) {
      std::erase_if(plan.ops, [](const SyncOp& op) { return op.kind == SyncOp::Kind::all_gather; });
    }
    CHECK_FALSE(violations(ranks.plans, layout.run.parallel).empty());
  }
}

TEST_CASE("a run by a sync plan that no strategy makes gives the bits of replicate") {
  for (const Layout& layout : layouts()) {
    const MeshRunResult expected = run_mesh(layout.run);
    for (const auto& [name, generate] : kToys) {
      INFO(name << ", " << layout.name);
      MeshRun run = layout.run;
      run.makers.sync_plan = generate;
      const MeshRunResult result = run_mesh(run);
      CHECK(bit_differences(result, expected) == "");
    }
  }
}

TEST_CASE("a step by a sync plan that no strategy makes sends the bytes of its ops") {
  for (const auto& [name, generate] : kToys) {
    for (const Layout& layout : layouts()) {
      INFO(name << ", " << layout.name);
      MeshRun run = layout.run;
      run.makers.sync_plan = generate;
      std::vector<std::size_t> planned;
      for (const SyncPlan& plan : Ranks(run.options().job, generate).plans) {
        planned.push_back(planned_bytes(plan));
      }
      CHECK(sent_bytes(run) == planned);
    }
  }
}

}  // namespace slackline::testing
