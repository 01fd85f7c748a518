#include "parallel/plan/step_costs.h"

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

CodecCost assumed_codec_cost(const CodecSetting& setting,
                             const std::vector<std::int64_t>& shape,
                             const AssumedSpeeds& speeds) {
  const double elements = num_elements(shape);
  // Two reads of the message to find scales or thresholds and to write; one write to decode.
  double encode = 3.0 * kFloatBytes * elements / speeds.bytes_per_second;
  double decode = kFloatBytes * elements / speeds.bytes_per_second;
  if (const CodecTraits& traits = traits_of(setting.kind); traits.work != nullptr) {
    const CodecWork work = traits.work(setting);
    encode += work.encode * elements / speeds.flops_per_second;
    decode += work.decode * elements / speeds.flops_per_second;
  }
  return {.codec = setting, .shape = shape, .encode = {encode}, .decode = {decode}};
}

CodecCost codec_cost(const StepCosts& costs,
                     const CodecSetting& setting,
                     const std::vector<std::int64_t>& shape) {
  const std::optional<CodecCost> known = costs.of_codec(setting, shape);
  return known ? *known : assumed_codec_cost(setting, shape, {});
}

}  // namespace slackline
