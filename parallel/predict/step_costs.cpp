#include "parallel/predict/step_costs.h"

#include <cmath>
#include <utility>

#include "parallel/mesh/stage_split.h"
#include "parallel/predict/byte_inputs.h"
#include "parallel/predict/step_cost_model.h"

namespace slackline {

namespace {

using schedule::Seconds;

// Weight, gradient and two moments are read, all but the gradient written: 7 floats.
constexpr double kUpdateBytes = 28.0;
constexpr double kFloatBytes = 4.0;

template <typename Matches>
std::optional<Seconds> mean(const std::vector<OpCost>& ops, const Matches& matches) {
  Seconds sum{};
  int count = 0;
  for (const OpCost& op : ops) {
    if (matches(op)) {
      sum += op.seconds;
      ++count;
    }
  }
  return count == 0 ? std::nullopt : std::optional((1.0 / count) * sum);
}

double num_elements(const std::vector<std::int64_t>& shape) {
  double elements = 1.0;
  for (const std::int64_t size : shape) {
    elements *= static_cast<double>(size);
  }
  return elements;
}

bool has(const StepCosts& costs, CostKind kind) {
  return costs.of_part(kind).has_value();
}

// Of all virtual stages, where each has the pass.
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
  for (int stage = 0; stage < job.parallel.num_virtual_stages(); ++stage) {
    const auto seconds = costs.of_stage(stage, CostKind::optimizer);
    if (!seconds) {
      return std::nullopt;
    }
    sum += *seconds;
    elements += updated_elements(job, stage);
  }
  return (1.0 / elements) * sum;
}

void add_scaled(StepCosts& costs,
                const StepCosts& shares,
                double factor,
                std::initializer_list<CostKind> kinds) {
  for (const CostKind kind : kinds) {
    if (const auto share = shares.of_part(kind); share && !has(costs, kind)) {
      costs.ops.push_back({.kind = kind, .seconds = factor * *share});
    }
  }
}

}  // namespace

std::optional<CodecCost> StepCosts::of_codec(const CodecSetting& setting,
                                             const std::vector<std::int64_t>& shape) const {
  const double elements = num_elements(shape);
  const CodecCost* nearest = nullptr;
  double nearest_factor = 0.0;
  for (const CodecCost& cost : codecs) {
    const double factor = elements / num_elements(cost.shape);
    const auto distance = [](double of) { return std::abs(std::log(of)); };
    if (cost.codec == setting &&
        (nearest == nullptr || cost.shape == shape ||
         (nearest->shape != shape && distance(factor) < distance(nearest_factor)))) {
      nearest = &cost;
      nearest_factor = factor;
    }
  }
  if (nearest == nullptr) {
    return std::nullopt;
  }
  CodecCost cost = *nearest;
  cost.shape = shape;
  cost.encode = nearest_factor * cost.encode;
  cost.decode = nearest_factor * cost.decode;
  cost.sent_bytes = static_cast<std::size_t>(nearest_factor * static_cast<double>(cost.sent_bytes));
  return cost;
}

std::optional<Seconds> StepCosts::of_stage(int stage, CostKind kind) const {
  return mean(ops, [&](const OpCost& op) { return op.kind == kind && op.stage == stage; });
}

std::optional<Seconds> StepCosts::of_part(CostKind kind) const {
  return mean(ops, [&](const OpCost& op) { return op.kind == kind; });
}

CostLayout layout_of(const MeshJob& job) {
  CostLayout layout{.tensor = job.parallel.tensor, .tokens = job.micro_batch.num_tokens()};
  for (const ChunkSlice& chunk : split_layers(job.model, job.parallel)) {
    layout.layers.push_back(chunk.num_layers());
  }
  return layout;
}

StepCosts assumed_costs(const ModelConfig& model, const AssumedSpeeds& speeds) {
  const double C = model.hidden;
  const double products = 2.0 * (4.0 * C * C + 2.0 * C * model.ffn);
  const double attention = 2.0 * C * model.sequence;  // the causal half
  const double lookup = 2.0 * C;                      // next to nothing, as stage_split counts it
  const double again = model.recompute == Recompute::block ? products + attention : 0.0;
  const double input = products + 2.0 * attention + again;
  StepCosts costs;
  const auto add = [&](CostKind kind, double flops) {
    costs.ops.push_back({.kind = kind, .seconds = {flops / speeds.flops_per_second}});
  };
  add(CostKind::embedding_forward, lookup);
  add(CostKind::embedding_backward, lookup);
  add(CostKind::layer_forward, products + attention);
  add(CostKind::layer_backward, input + products);
  add(CostKind::layer_backward_input, input);
  add(CostKind::layer_backward_weight, products);
  add(CostKind::head_forward, lookup);
  add(CostKind::head_backward, 6.0 * C * model.vocab);
  costs.ops.push_back(
      {.kind = CostKind::element_update, .seconds = {kUpdateBytes / speeds.bytes_per_second}});
  return costs;
}

CodecCost assumed_codec_cost(const CodecSetting& setting,
                             const std::vector<std::int64_t>& shape,
                             const AssumedSpeeds& speeds) {
  const double elements = num_elements(shape);
  // Two reads of the message to find scales or thresholds and to write; one write to decode.
  double encode = 3.0 * kFloatBytes * elements / speeds.bytes_per_second;
  double decode = kFloatBytes * elements / speeds.bytes_per_second;
  if (setting.kind == CodecKind::low_rank) {  // products with both factors, then their product
    encode += 4.0 * setting.rank * elements / speeds.flops_per_second;
    decode += 2.0 * setting.rank * elements / speeds.flops_per_second;
  }
  return {.codec = setting, .shape = shape, .encode = {encode}, .decode = {decode}};
}

CodecCost codec_cost(const StepCosts& costs,
                     const CodecSetting& setting,
                     const std::vector<std::int64_t>& shape) {
  const std::optional<CodecCost> known = costs.of_codec(setting, shape);
  return known ? *known : assumed_codec_cost(setting, shape, {});
}

StepCosts with_parts(const MeshJob& job, StepCosts measured) {
  measured.layout = layout_of(job);
  measured.model = job.model;
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
      seconds && !has(measured, CostKind::element_update)) {
    measured.ops.push_back({.kind = CostKind::element_update, .seconds = *seconds});
  }
  return measured;
}

}  // namespace slackline
