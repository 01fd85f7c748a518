// The suite can fail: each fault that a layout may have is put into a run, and the comparison that
// equivalence_test.cpp makes must notice it.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/equivalence/bounds.h"
#include "tests/equivalence/layouts.h"
#include "tests/equivalence/skipping_communicator.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

MeshRun split_run() {
  MeshRun run{
      .model = {.layers = 4, .hidden = 32, .heads = 4, .sequence = 16, .vocab = 67, .ffn = 96}};
  run.parallel.tensor = 2;
  run.parallel.pipeline = 2;
  run.parallel.data = 2;
  return run;
}

// What the comparison with one rank says; "" when it notices nothing.
Mismatch noticed(const MeshRun& run, const Interference& interference) {
  return beyond(distance(run_mesh(run, interference), run_mesh(on_one_rank(run))), kFloatRounding);
}

Interference skipping(const std::string& axis, int skipped) {
  return {.world = [=](Communicator& world) {
    return std::make_unique<SkippingCommunicator>(
        world, SkippingCommunicator::Skip{.axis = axis, .skipped = skipped});
  }};
}

bool is_last_stage_only(const MeshModel& model) {
  return model.slice().head() && !model.slice().embedding();
}

}  // namespace

TEST_CASE("a run without a fault is not reported") {
  CHECK(noticed(split_run(), {}) == "");
}

TEST_CASE("a skipped tensor sum is noticed, whichever it is") {
  // Ranks that sum nothing hold different replicas: either the run itself or the comparison says
  // so. The first sum is a forward one, the last of the first micro-batch a backward one.
  for (const int skipped : {0, 1, 4, 5}) {
    INFO("sum " << skipped);
    std::string report;
    try {
      report = noticed(split_run(), skipping("tensor", skipped)).report;
    } catch (const Error& error) {
      report = error.what();
    }
    CHECK_FALSE(report.empty());
  }
}

TEST_CASE("a skipped sum of gradients is noticed") {
  MeshRun run = split_run();
  run.steps = 1;
  for (const std::string axis : {"data", "embedding"}) {
    INFO(axis);
    std::string report;
    try {
      report = noticed(run, skipping(axis, 0)).report;
    } catch (const Error& error) {
      report = error.what();
    }
    CHECK_FALSE(report.empty());
  }
}

TEST_CASE("a wrong dropout key on one stage is noticed") {
  MeshRun run = split_run();
  run.model.dropout = 0.1F;
  CHECK(noticed(run, {}) == "");
  const auto shift_samples = [](const MeshModel& model, std::vector<MicroBatch>& micro_batches) {
    if (is_last_stage_only(model)) {
      micro_batches[1].first_sample += 1;
    }
  };
  CHECK_THAT(noticed(run, {.batches = shift_samples}).report, Catch::Contains("gradient is off"));
}

TEST_CASE("micro-batches swapped on one stage are noticed") {
  const auto swap_two = [](const MeshModel& model, std::vector<MicroBatch>& micro_batches) {
    if (is_last_stage_only(model)) {
      std::swap(micro_batches[0], micro_batches[1]);
    }
  };
  CHECK_THAT(noticed(split_run(), {.batches = swap_two}).report, Catch::Contains("loss is off"));
}

TEST_CASE("tokens under each other's dropout keys are noticed") {
  MeshRun run = split_run();
  run.model.dropout = 0.1F;
  const auto exchange_tokens = [](const MeshModel&, std::vector<MicroBatch>& micro_batches) {
    std::swap(micro_batches[0].tokens, micro_batches[1].tokens);
    std::swap(micro_batches[0].targets, micro_batches[1].targets);
  };
  CHECK_THAT(noticed(run, {.batches = exchange_tokens}).report, Catch::Contains("gradient is off"));
}

TEST_CASE("a shared parameter that is counted twice is noticed") {
  const auto count_again = [](ParameterRole role) {
    return [role](MeshModel& model, double) {
      std::vector<OptimizerPiece> pieces = model.pieces();
      for (OptimizerPiece& piece : pieces) {
        piece.counted = piece.counted || piece.parameter->spec.role == role;
      }
      return model.agreement()
          .agree({}, pieces, model.optimizer().squared_norms(model.stream()))
          .gradient_norm;
    };
  };
  // The tied table stands on two stages and two data ranks, norms on all tensor and data ranks.
  for (const ParameterRole role : {ParameterRole::token_embedding, ParameterRole::norm_bias}) {
    CHECK_THAT(noticed(split_run(), {.norm = count_again(role)}).report,
               Catch::Contains("gradient norm is off"));
  }
}

}  // namespace slackline::testing
