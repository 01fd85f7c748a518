#include "model/parameters.h"

#include <algorithm>

#include "core/arena.h"
#include "core/kernels/elementwise.h"
#include "core/rng.h"

namespace slackline {

namespace {

bool has_copy(const ParameterSpec& spec, DType compute) {
  return compute == DType::bf16 && spec.role != ParameterRole::norm_weight &&
         spec.role != ParameterRole::norm_bias;
}

// Walks the parameters and their places, 64-byte aligned, in one buffer per kind. Used both to
// measure and to make the views.
class Placement {
 public:
  Tensor place(const Buffer& buffer, DType dtype, const Shape& shape, std::size_t& used) {
    const std::size_t offset = used;
    used += Arena::aligned_bytes(dtype, shape);
    return buffer.view(dtype, shape, offset);
  }

  std::size_t weights = 0;
  std::size_t gradients = 0;
  std::size_t copies = 0;
};

// Fills a tensor with normal numbers of its own named stream.
void fill_normal(StreamView stream, const Tensor& tensor, PhiloxKey key, double std) {
  constexpr std::size_t kPairsPerTask = 8192;
  const std::span<float> values = tensor.span<float>();
  const std::size_t num_pairs = (values.size() + 1) / 2;
  const std::size_t num_tasks = (num_pairs + kPairsPerTask - 1) / kPairsPerTask;
  stream.pool().parallel_for(num_tasks, [&](std::size_t task, int) {
    const std::size_t end = std::min(num_pairs, (task + 1) * kPairsPerTask);
    for (std::size_t pair = task * kPairsPerTask; pair < end; ++pair) {
      const std::array<double, 2> numbers = normal_pair(key, pair);
      values[2 * pair] = static_cast<float>(std * numbers[0]);
      if (2 * pair + 1 < values.size()) {
        values[2 * pair + 1] = static_cast<float>(std * numbers[1]);
      }
    }
  });
}

}  // namespace

Parameters::Bytes Parameters::bytes(const ModelConfig& config, const Options& options) {
  Bytes bytes;
  for (const ParameterSpec& spec : parameter_table(config)) {
    const std::size_t fp32_bytes = Arena::aligned_bytes(DType::f32, spec.shape);
    bytes.weights += fp32_bytes;
    bytes.gradients += options.gradients == Gradients::fp32 ? fp32_bytes : 0;
    bytes.copies +=
        has_copy(spec, options.compute) ? Arena::aligned_bytes(DType::bf16, spec.shape) : 0;
    if (spec.role == ParameterRole::token_embedding && config.tie_embeddings &&
        options.gradients == Gradients::fp32) {
      bytes.input_gradient = fp32_bytes;
    }
  }
  return bytes;
}

Parameters::Parameters(const ModelConfig& config, const Options& options) {
  const Bytes total = bytes(config, options);
  weights_ = Buffer("weights", total.weights);
  gradients_ = Buffer("gradients", total.gradients);
  copies_ = Buffer("bf16 weights", total.copies);
  Placement at;
  for (const ParameterSpec& spec : parameter_table(config)) {
    Parameter parameter{.spec = spec};
    parameter.weight = at.place(weights_, DType::f32, spec.shape, at.weights);
    if (options.gradients == Gradients::fp32) {
      parameter.gradient = at.place(gradients_, DType::f32, spec.shape, at.gradients);
    }
    if (has_copy(spec, options.compute)) {
      parameter.weight_bf16 = at.place(copies_, DType::bf16, spec.shape, at.copies);
    }
    parameters_.push_back(parameter);
  }
  if (total.input_gradient > 0) {
    input_gradient_buffer_ = Buffer("input embedding gradient", total.input_gradient);
    input_gradient_buffer_.fill_zero();
    input_gradient_ = input_gradient_buffer_.view(DType::f32, parameters_.front().spec.shape);
  }
}

Parameter& Parameters::at(std::string_view name) {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(), [&](const Parameter& p) {
    return p.spec.name == name;
  });
  SL_CHECK(found != parameters_.end(), "no parameter " + std::string(name));
  return *found;
}

void Parameters::refresh_copies(StreamView stream) {
  for (const Parameter& parameter : parameters_) {
    if (!parameter.weight_bf16.empty()) {
      cast(stream, parameter.weight, parameter.weight_bf16);
    }
  }
}

void initialize(StreamView stream, Parameters& parameters, std::uint64_t seed) {
  for (const Parameter& parameter : parameters.all()) {
    const ParameterSpec& spec = parameter.spec;
    if (spec.init_std > 0.0) {
      fill_normal(stream, parameter.weight, philox_key(seed, spec.name), spec.init_std);
    } else {
      const std::span<float> values = parameter.weight.span<float>();
      std::fill(
          values.begin(), values.end(), spec.role == ParameterRole::norm_weight ? 1.0F : 0.0F);
    }
  }
  parameters.refresh_copies(stream);
}

}  // namespace slackline
