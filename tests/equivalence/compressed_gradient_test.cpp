// Gradients of compressed steps against finite differences of losses, for every codec on every
// site that it may sit on.

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/equivalence/sampled_step.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

// Which tensors move, by name.
using Moves = std::function<bool(const std::string& name)>;

MeshRun job(const std::string& site) {
  MeshRun run{.model = {.layers = 2,
                        .hidden = 32,
                        .heads = 4,
                        .sequence = 12,
                        .vocab = 67,
                        .ffn = 96,
                        .dropout = 0.0F}};
  run.parallel.pipeline = site == "data_gradient" ? 1 : 2;
  run.parallel.data = site == "data_gradient" || site == "embedding" ? 2 : 1;
  run.global_batch = 8;
  run.steps = 1;
  return run;
}

double product(const LogicalTensors& a, const LogicalTensors& b, const Moves& moves) {
  double sum = 0.0;
  for (const auto& [name, values] : a) {
    if (moves(name)) {
      sum += dot(values, b.at(name));
    }
  }
  return sum;
}

// The loss at the initial weights, moved by `by` along a direction of unit length.
double loss_at(const MeshRun& run, const LogicalTensors& direction, const Moves& moves, double by) {
  const double length = std::sqrt(product(direction, direction, moves));
  const auto move = [&](const MeshModel& model, std::vector<MicroBatch>& /*batches*/) {
    // Ranks without a tensor axis hold whole tensors.
    for (const Parameter& parameter : const_cast<MeshModel&>(model).parameters().all()) {
      if (!moves(parameter.spec.name)) {
        continue;
      }
      const std::vector<float>& values = direction.at(parameter.spec.name);
      const std::span<float> weights = parameter.weight.span<float>();
      for (std::size_t i = 0; i < weights.size(); ++i) {
        weights[i] += static_cast<float>(by / length * values[i]);
      }
    }
  };
  return run_mesh(run, {.batches = move}).losses.front();
}

// How fast the loss grows along a direction of unit length. Two steps, of which the error that
// grows with the square of the step is taken out.
double finite_slope(const MeshRun& run, const LogicalTensors& direction, const Moves& moves) {
  const auto difference = [&](double step) {
    return (loss_at(run, direction, moves, step) - loss_at(run, direction, moves, -step)) /
           (2.0 * step);
  };
  constexpr double kStep = 0.005;
  return (4.0 * difference(kStep) - difference(2.0 * kStep)) / 3.0;
}

// The slope along the gradient that a compressed step has found, over the finite one.
double share_of_slope(const MeshRun& run, const Moves& moves) {
  const LogicalTensors gradient = run_mesh(run).gradients;
  const double analytic = std::sqrt(product(gradient, gradient, moves));
  return analytic / finite_slope(run, gradient, moves);
}

bool every(const std::string& /*name*/) {
  return true;
}

bool first_layer(const std::string& name) {
  return name.starts_with("h.0.");
}

bool table(const std::string& name) {
  return name == "wte.weight";
}

CodecSetting sparse(CodecKind kind, double ratio) {
  return {.kind = kind, .always = true, .ratio = ratio};
}

CodecSetting integers(int bits, Rounding rounding = Rounding::nearest) {
  return {.kind = CodecKind::quantize, .bits = bits, .scale = ScaleOf::token, .rounding = rounding};
}

CodecSetting full_rank() {
  return {.kind = CodecKind::low_rank, .always = true, .rank = 1000};
}

struct Case {
  CodecSetting setting{};
  double tolerance = 0.0;
};

// Central differences of a loss that is summed from floats: 1e-7 of it over a change of some 1e-2,
// and what two steps leave of higher derivatives.
constexpr double kDifferences = 2e-3;

}  // namespace

TEST_CASE("gradients behind a compressed activation are those of the loss, for every codec") {
  REQUIRE(share_of_slope(job("pipeline_forward"), every) == Approx(1.0).epsilon(kDifferences));
  const std::vector<Case> cases = {
      {sparse(CodecKind::random_k, 0.25), kDifferences},
      {sparse(CodecKind::random_k, 0.5), kDifferences},
      // A smaller ratio keeps other elements as soon as the activation moves, and the loss jumps;
      // the codec's own test has smaller ones where the same elements stay.
      {sparse(CodecKind::top_k, 1.0), kDifferences},
      // Straight through: roundings of both losses differ, and do not add up over 3,000 elements.
      {{.kind = CodecKind::cast}, 0.02},
      {integers(8), 0.05},
      {full_rank(), kDifferences}};
  for (const auto& [setting, tolerance] : cases) {
    for (const Moves& moves : {Moves(every), Moves(first_layer), Moves(table)}) {
      INFO(short_text(setting));
      const MeshRun run = compressed(job("pipeline_forward"), "pipeline_forward", setting);
      CHECK(share_of_slope(run, moves) == Approx(1.0).epsilon(tolerance));
    }
  }
}

namespace {

// The share of the loss's own slope that compressed gradients have, at one draw of random numbers.
double share_along_plain(const MeshRun& run, const LogicalTensors& plain, int draw) {
  const auto redraw = [&](const MeshModel& /*model*/, std::vector<MicroBatch>& batches) {
    for (MicroBatch& batch : batches) {
      batch.step = static_cast<std::uint64_t>(draw);
    }
  };
  const LogicalTensors found = run_mesh(run, {.batches = redraw}).gradients;
  return product(found, plain, every) / product(plain, plain, every);
}

}  // namespace

TEST_CASE("compressed gradients have the slope of the loss, for every codec on every site") {
  for (const char* site : {"pipeline_backward", "data_gradient", "embedding"}) {
    const MeshRun plain = job(site);
    const LogicalTensors gradient = run_mesh(plain).gradients;
    REQUIRE(share_of_slope(plain, every) == Approx(1.0).epsilon(kDifferences));
    const std::vector<Case> cases = {
        {sparse(CodecKind::random_k, 1.0), 1e-6},
        {sparse(CodecKind::top_k, 1.0), 1e-6},
        {{.kind = CodecKind::cast}, 0x1p-9},  // half a unit in the 8th bit
        {integers(8), 0x1p-6},                // half a step of a maximum that is 4 times the rest
        {full_rank(), 1e-5}};
    for (const auto& [setting, tolerance] : cases) {
      INFO(site << ", " << short_text(setting));
      const MeshRun run = compressed(plain, site, setting);
      CHECK(share_along_plain(run, gradient, 1) == Approx(1.0).epsilon(tolerance));
    }
  }
}

TEST_CASE("codecs that draw have the slope of the loss on average, on every site") {
  constexpr int kDraws = 32;
  const std::vector<Case> cases = {
      {sparse(CodecKind::random_k, 0.25), 0.0},
      {integers(8, Rounding::stochastic), 0x1p-7}};  // a maximum may be clipped by one step
  for (const char* site : {"pipeline_backward", "data_gradient", "embedding"}) {
    const LogicalTensors gradient = run_mesh(job(site)).gradients;
    for (const auto& [setting, tolerance] : cases) {
      INFO(site << ", " << short_text(setting));
      const MeshRun run = compressed(job(site), site, setting);
      double sum = 0.0;
      double squares = 0.0;
      for (int draw = 1; draw <= kDraws; ++draw) {
        const double share = share_along_plain(run, gradient, draw);
        sum += share;
        squares += share * share;
      }
      const double mean = sum / kDraws;
      const double deviation = std::sqrt((squares / kDraws - mean * mean) / kDraws);
      INFO("mean " << mean << ", its deviation " << deviation);
      CHECK(deviation < 0.05);
      CHECK(std::abs(mean - 1.0) < 4.0 * deviation + tolerance);
    }
  }
}

}  // namespace slackline::testing
