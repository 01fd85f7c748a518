// debug.check_sync: replicated weights that drift apart are found, and those that do not pass.

#include <string>

#include "core/comm/world.h"
#include "tests/equivalence/mesh_run.h"
#include "tests/support/catch.h"
#include "tests/support/refusal.h"

namespace slackline::testing {

namespace {

MeshRun split_run() {
  MeshRun run{
      .model = {.layers = 2, .hidden = 32, .heads = 4, .sequence = 16, .vocab = 67, .ffn = 96}};
  run.parallel.tensor = 2;
  run.parallel.pipeline = 2;
  run.parallel.data = 2;
  run.parallel.data_strategy = DataStrategy::zero1;
  return run;
}

// Returns what the check says when world rank `rank` has another element 5 of a parameter.
std::string complaint(int rank, const std::string& name) {
  const MeshRun run = split_run();
  return refusal_of<Error>([&] {
    run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
      Groups groups(world, run.parallel, run.model.tie_embeddings);
      MeshModel model(run.options(), groups);
      model.initialize(1);
      if (world.rank() == rank) {
        model.parameters().at(name).weight.data<float>()[5] += 1.0F;
      }
      model.require_sync();
    });
  });
}

}  // namespace

TEST_CASE("weights that agree pass the sync check after every step") {
  MeshRun run = split_run();
  // The same, and a table with 34 and 33 rows on tensor ranks, which shares its bucket with
  // positions that both have.
  if (GENERATE(false, true)) {
    run.parallel.pipeline = 1;
    run.parallel.data = 4;
    run.parallel.data_strategy = DataStrategy::zero3;
    run.model.tie_embeddings = false;
  }
  run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
    Groups groups(world, run.parallel, run.model.tie_embeddings);
    MeshModel model(run.options(), groups);
    model.initialize(kSeed);
    for (int step = 1; step <= 2; ++step) {
      RankBatches batches(run, model, step);
      const StepFacts facts = model.make_gradients(batches.micro_batches());
      model.update(kLearningRate, facts.gradient_norm);
      model.require_sync();
    }
  });
}

TEST_CASE("the sync check names a parameter and element that differ between replicas") {
  using Catch::Contains;
  // Ranks count tensor, then data, then pipeline: 2 is the second data rank of the first stage, 1
  // the second tensor rank, 4 the first rank of the last stage.
  CHECK_THAT(complaint(2, "h.0.mlp.c_fc.weight"),
             Contains("h.0.mlp.c_fc.weight") && Contains("axis data") && Contains("element 5"));
  CHECK_THAT(complaint(1, "h.0.ln_1.weight"),
             Contains("h.0.ln_1.weight") && (Contains("axis tensor") || Contains("axis data")));
  CHECK_THAT(complaint(4, "wte.weight"), Contains("wte.weight"));
}

}  // namespace slackline::testing
