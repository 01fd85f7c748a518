// Stochastic rounding over many ranks: errors of what is added up are independent, and numbers are
// those of every layout that promises the same.

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/equivalence/distance.h"
#include "tests/equivalence/outer_run.h"
#include "tests/equivalence/sampled_step.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

constexpr int kDraws = 8;

CodecSetting integers(Rounding rounding) {
  return {.kind = CodecKind::quantize, .bits = 4, .scale = ScaleOf::token, .rounding = rounding};
}

// Gradients of the first step's tokens as another step would round them.
LogicalTensors gradients(const MeshRun& run, int draw) {
  const auto redraw = [&](const MeshModel& /*model*/, std::vector<MicroBatch>& batches) {
    for (MicroBatch& batch : batches) {
      batch.step = static_cast<std::uint64_t>(draw);
    }
  };
  return run_mesh(run, {.batches = redraw}).gradients;
}

// The sum of squares of what rounding changes in one tensor, over all draws.
double error(const MeshRun& plain,
             const std::string& site,
             Rounding rounding,
             const std::string& tensor) {
  const std::vector<float> exact = run_mesh(plain).gradients.at(tensor);
  double sum = 0.0;
  for (int draw = 1; draw <= kDraws; ++draw) {
    std::vector<float> lost = gradients(compressed(plain, site, integers(rounding)), draw)[tensor];
    for (std::size_t i = 0; i < lost.size(); ++i) {
      lost[i] -= exact[i];
    }
    sum += dot(lost, lost);
  }
  return sum;
}

// The rms error of stochastic rounding over that of nearest rounding. A fraction f of a step gives
// f (1 - f) where rounding is stochastic, 1/6 on average, and 1/12 where it is nearest: sqrt(2), as
// long as errors of different messages are independent. Where n messages draw alike, errors have a
// correlation of 1/2, and the ratio is sqrt(n + 1). Maxima that are clipped add to both. 500
// squares and more leave 10 %.
double rms_ratio(const MeshRun& plain, const std::string& site, const std::string& tensor) {
  return std::sqrt(error(plain, site, Rounding::stochastic, tensor) /
                   error(plain, site, Rounding::nearest, tensor));
}

// The bias that ends the first stage adds up the gradients of all its tokens.
constexpr const char* kBeforeBoundary = "h.1.mlp.c_proj.bias";

}  // namespace

TEST_CASE("ranks round their gradients independently of each other") {
  CHECK(rms_ratio(one_step({.data = 8}), "data_gradient", "h.1.mlp.c_fc.weight") ==
        Approx(std::sqrt(2.0)).epsilon(0.1));
}

TEST_CASE("replicas and tensor ranks round a boundary's messages independently of each other") {
  for (const ParallelConfig& parallel :
       {ParallelConfig{.pipeline = 2, .data = 4},
        ParallelConfig{.tensor = 2, .pipeline = 2},
        ParallelConfig{.tensor = 4, .pipeline = 2},
        ParallelConfig{.tensor = 2, .pipeline = 2, .data = 2, .sequence_parallel = true}}) {
    INFO("tensor " << parallel.tensor << ", data " << parallel.data);
    CHECK(rms_ratio(one_step(parallel), "pipeline_backward", kBeforeBoundary) ==
          Approx(std::sqrt(2.0)).epsilon(0.15));
  }
}

TEST_CASE("workers that train apart round independently of each other") {
  const auto differ_after_a_step =
      [](const OuterRun& plain, const std::string& site, Rounding rounding) {
        OuterRun run = plain;
        run.mesh = compressed(run.mesh, site, integers(rounding));
        run.same_samples = true;
        run.is_left_early = true;
        run.mesh.steps = 1;
        const int ranks = run.mesh.parallel.num_ranks();
        std::vector<std::vector<float>> weights(static_cast<std::size_t>(ranks));
        static_cast<void>(
            run_outer(run, {.after_update = [&](MeshModel& model, int /*step*/) {
                        std::vector<float>& own =
                            weights[static_cast<std::size_t>(model.groups().everyone->rank())];
                        for (const OptimizerPiece& piece : model.pieces()) {
                          const auto values = piece.parameter->weight.span<float>();
                          own.insert(own.end(), values.begin(), values.end());
                        }
                      }}));
        return weights.front() != weights[static_cast<std::size_t>(ranks / 2)];
      };
  const char* const outer = R"({"method": "diloco", "period": 6})";
  for (const auto& [run, site] : {std::pair{run_of(outer, 1, 2, 2, 1), "pipeline_backward"},
                                  {run_of(outer, 1, 1, 4, 2), "data_gradient"}}) {
    INFO(site);
    CHECK(differ_after_a_step(run, site, Rounding::stochastic));
    CHECK_FALSE(differ_after_a_step(run, site, Rounding::nearest));
  }
}

// Sums of fp32 that another layout makes in another order may turn the rounding of an element that
// lies next to a draw: one of 12,000 by a step is 2e-4 of the gradient. Other draws are 0.1.
TEST_CASE("a boundary is rounded alike however micro-batches and tokens are dealt to ranks") {
  for (const char* site : {"pipeline_backward", "pipeline_forward"}) {
    const CodecSetting setting = integers(Rounding::stochastic);
    const MeshRunResult expected = run_mesh(compressed(one_step({.pipeline = 2}), site, setting));
    REQUIRE(gradient_distance(run_mesh(one_step({.pipeline = 2})), expected) > 0.02);
    for (const ParallelConfig& parallel :
         {ParallelConfig{.pipeline = 2, .data = 2},
          ParallelConfig{.pipeline = 2, .data = 4},
          ParallelConfig{.tensor = 2, .pipeline = 2},
          ParallelConfig{.tensor = 2, .pipeline = 2, .data = 2, .sequence_parallel = true}}) {
      INFO(site << ", tensor " << parallel.tensor << ", data " << parallel.data);
      const MeshRunResult found = run_mesh(compressed(one_step(parallel), site, setting));
      CHECK(gradient_distance(found, expected) < 2e-3);
    }
  }
}

TEST_CASE("stochastic rounding gives the same bits over pipeline splits and schedules") {
  const CodecSetting setting = integers(Rounding::stochastic);
  const MeshRunResult gradient =
      run_mesh(compressed(one_step({.data = 2}), "data_gradient", setting));
  for (const ParallelConfig& parallel :
       {ParallelConfig{.pipeline = 2, .data = 2},
        ParallelConfig{.pipeline = 4, .data = 2, .schedule = ScheduleName::gpipe},
        ParallelConfig{.pipeline = 2, .data = 2, .schedule = ScheduleName::zb_h1},
        ParallelConfig{.pipeline = 2,
        .data = 2,
        .data_strategy = DataStrategy::zero1,
        .embedding_sync = EmbeddingSync::separate}}) {
    const MeshRunResult found = run_mesh(compressed(one_step(parallel), "data_gradient", setting));
    CHECK(bit_differences(found, gradient) == "");
  }
  const ParallelConfig stages{.pipeline = 2, .data = 2};
  const MeshRunResult boundary =
      run_mesh(compressed(one_step(stages), "pipeline_backward", setting));
  for (const ScheduleName schedule : {ScheduleName::gpipe, ScheduleName::zb_h1}) {
    ParallelConfig parallel = stages;
    parallel.schedule = schedule;
    const MeshRunResult found =
        run_mesh(compressed(one_step(parallel), "pipeline_backward", setting));
    CHECK(bit_differences(found, boundary) == "");
  }
}

}  // namespace slackline::testing
