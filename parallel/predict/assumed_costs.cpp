#include "parallel/predict/assumed_costs.h"

#include <initializer_list>
#include <optional>

#include "model/cost/part_flops.h"
#include "parallel/mesh/stage_split.h"
#include "parallel/predict/bucket_times.h"
#include "parallel/predict/step_cost_model.h"

namespace slackline {

namespace {

using schedule::Seconds;

// Weight, gradient and two moments are read, all but the gradient written: 7 floats.
constexpr double kUpdateBytes = 28.0;

// Sums the pass over all virtual stages; nothing where one of them lacks it.
std::optional<Seconds> measured_pass(const StepCosts& costs, int num_stages, bool forward) {
  Seconds sum{};
  for (int stage = 0; stage < num_stages; ++stage) {
    const auto whole = costs.of_stage(stage, forward ? CostKind::forward : CostKind::backward);
    const auto input = costs.of_stage(stage, CostKind::backward_input);
    const auto weight = costs.of_stage(stage, CostKind::backward_weight);
    if (whole) {
      sum += *whole;
    } else if (!forward && input && weight) {
      sum += *input + *weight;
    } else {
      return std::nullopt;
    }
  }
  return sum;
}

std::optional<Seconds> measured_update(const StepCosts& costs, const MeshJob& job) {
  Seconds sum{};
  double elements = 0.0;
  const MeshLists lists(job);
  for (int stage = 0; stage < job.parallel.num_virtual_stages(); ++stage) {
    const auto seconds = costs.of_stage(stage, CostKind::optimizer);
    if (!seconds) {
      return std::nullopt;
    }
    sum += *seconds;
    elements += updated_elements(lists, stage);
  }
  return (1.0 / elements) * sum;
}

void add_scaled(StepCosts& costs,
                const StepCosts& shares,
                double factor,
                std::initializer_list<CostKind> kinds) {
  for (const CostKind kind : kinds) {
    if (const auto share = shares.of_part(kind); share && !costs.of_part(kind)) {
      costs.ops.push_back({.kind = kind, .seconds = factor * *share});
    }
  }
}

}  // namespace

CostLayout layout_of(const MeshJob& job) {
  CostLayout layout{.tensor = job.parallel.tensor, .tokens = job.micro_batch.num_tokens()};
  for (const ChunkSlice& chunk : split_layers(job.model, job.parallel)) {
    layout.layers.push_back(chunk.num_layers());
  }
  return layout;
}

StepCosts assumed_costs(const ModelConfig& model, const AssumedSpeeds& speeds) {
  const PassFlops embedding = embedding_flops(model);
  const PassFlops layer = layer_flops(model);
  const PassFlops head = head_flops(model);
  StepCosts costs{.speeds = speeds};
  const auto add = [&](CostKind kind, double flops) {
    costs.ops.push_back({.kind = kind, .seconds = {flops / speeds.flops_per_second}});
  };
  add(CostKind::embedding_forward, embedding.forward);
  add(CostKind::embedding_backward, embedding.backward());
  add(CostKind::layer_forward, layer.forward);
  add(CostKind::layer_backward, layer.backward());
  add(CostKind::layer_backward_input, layer.backward_input + layer.recompute);
  add(CostKind::layer_backward_weight, layer.backward_weight);
  add(CostKind::head_forward, head.forward);
  add(CostKind::head_backward, head.backward());
  costs.ops.push_back(
      {.kind = CostKind::element_update, .seconds = {kUpdateBytes / speeds.bytes_per_second}});
  return costs;
}

StepCosts with_parts(const MeshJob& job, StepCosts measured) {
  measured.layout = layout_of(job);
  measured.model = job.model;
  measured.precision = job.precision;
  const int num_stages = job.parallel.num_virtual_stages();
  const StepCosts shares = assumed_costs(job.model, {});
  const schedule::CostModel assumed = cost_model(job, shares, std::nullopt);
  Seconds forward{};
  Seconds backward{};
  for (const schedule::ChunkCosts& chunk : assumed.chunks) {
    forward += chunk.forward;
    backward += chunk.backward_input + chunk.backward_weight;
  }
  if (const auto seconds = measured_pass(measured, num_stages, true)) {
    add_scaled(measured,
               shares,
               *seconds / forward,
               {CostKind::embedding_forward, CostKind::layer_forward, CostKind::head_forward});
  }
  if (const auto seconds = measured_pass(measured, num_stages, false)) {
    add_scaled(measured,
               shares,
               *seconds / backward,
               {CostKind::embedding_backward,
                CostKind::layer_backward,
                CostKind::layer_backward_input,
                CostKind::layer_backward_weight,
                CostKind::head_backward});
  }
  if (const auto seconds = measured_update(measured, job);
      seconds && !measured.of_part(CostKind::element_update)) {
    measured.ops.push_back({.kind = CostKind::element_update, .seconds = *seconds});
  }
  return measured;
}

PartShares part_shares(const ModelConfig& model, const ChunkSlice& stage) {
  const StepCosts assumed = assumed_costs(model, {});
  const auto seconds = [&](CostKind kind, bool held = true) {
    return held ? assumed.of_part(kind)->value : 0.0;
  };
  const double layers = stage.num_layers();
  const double forward = seconds(CostKind::layer_forward);
  const double backward = seconds(CostKind::layer_backward);
  const double weight = seconds(CostKind::layer_backward_weight);
  const double head = seconds(CostKind::head_backward, stage.head);
  const double others = head + seconds(CostKind::embedding_backward, stage.embedding);
  const double whole_forward = layers * forward + seconds(CostKind::head_forward, stage.head) +
                               seconds(CostKind::embedding_forward, stage.embedding);
  const double whole_backward = layers * backward + others;
  return {.layer_forward = forward / whole_forward,
          .layer_backward = backward / whole_backward,
          .layer_input = (backward - weight) / (whole_backward - layers * weight),
          .layer_weight = weight / whole_backward,
          .head_backward = head / whole_backward};
}

}  // namespace slackline
