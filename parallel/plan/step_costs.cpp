#include "parallel/plan/step_costs.h"

#include <algorithm>
#include <cmath>

#include "compress/codec_traits.h"

namespace slackline {

namespace {

using schedule::Seconds;

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

}  // namespace

std::optional<CodecCost> StepCosts::of_codec(const CodecSetting& setting,
                                             const std::vector<std::int64_t>& shape) const {
  const double elements = num_elements(shape);
  const CodecCost* nearest = nullptr;
  double nearest_factor = 0.0;
  for (const CodecCost& cost : codecs) {
    const double factor = elements / num_elements(cost.shape);
    const auto distance = [](double of) { return std::abs(std::log(of)); };
    if (cost.codec == setting_of_calls(setting) &&
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

AssumedSpeeds speeds_of_peaks(double flops_per_second, double bytes_per_second, double efficiency) {
  constexpr double kOfBandwidth = 0.8;
  return {.flops_per_second = efficiency * flops_per_second,
          .bytes_per_second = kOfBandwidth * bytes_per_second};
}

AssumedSpeeds assumed_speeds(const std::optional<Cluster>& cluster, DType precision) {
  std::optional<AssumedSpeeds> slowest;
  for (const Cluster::Nodes& kind : cluster ? cluster->nodes : std::vector<Cluster::Nodes>()) {
    if (!kind.device) {
      continue;
    }
    const Cluster::Device& device = *kind.device;
    const AssumedSpeeds own =
        speeds_of_peaks(precision == DType::bf16 ? device.bf16_flops : device.fp32_flops,
                        device.memory_bytes_per_second,
                        device.efficiency);
    slowest = slowest.value_or(own);
    slowest->flops_per_second = std::min(slowest->flops_per_second, own.flops_per_second);
    slowest->bytes_per_second = std::min(slowest->bytes_per_second, own.bytes_per_second);
  }
  return slowest.value_or(AssumedSpeeds{});
}

CodecCost codec_cost(const StepCosts& costs,
                     const CodecSetting& setting,
                     const std::vector<std::int64_t>& shape) {
  if (const std::optional<CodecCost> known = costs.of_codec(setting, shape)) {
    return *known;
  }
  const double elements = num_elements(shape);
  // Two reads of the message to find scales or thresholds and to write; one write to decode.
  double encode = 3.0 * kFloatBytes * elements / costs.speeds.bytes_per_second;
  double decode = kFloatBytes * elements / costs.speeds.bytes_per_second;
  if (const CodecTraits& traits = traits_of(setting.kind); traits.work != nullptr) {
    const CodecWork work = traits.work(setting);
    encode += work.encode * elements / costs.speeds.flops_per_second;
    decode += work.decode * elements / costs.speeds.flops_per_second;
  }
  return {.codec = setting, .shape = shape, .encode = {encode}, .decode = {decode}};
}

}  // namespace slackline
