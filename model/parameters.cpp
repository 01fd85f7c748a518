#include "model/parameters.h"

#include <algorithm>

#include "core/kernels/elementwise/elementwise.h"
#include "core/rng.h"
#include "core/tensor/arena.h"
#include "core/tensor/host_tensor.h"

namespace slackline {

namespace {

bool has_copy(const ParameterSpec& spec, DType compute) {
  return compute == DType::bf16 && !is_norm(spec.role);
}

ModelSlice held_slice(const ModelConfig& config, const Parameters::Options& options) {
  return options.slice ? *options.slice : whole_model(config);
}

std::size_t element_bytes(const std::vector<Parameter>& parameters) {
  std::size_t bytes = 0;
  for (const Parameter& parameter : parameters) {
    bytes += Arena::aligned_bytes(DType::f32, parameter.shard.shape);
  }
  return bytes;
}

// Fills elements `range` of a parameter's local tensor with the normal numbers of its logical
// tensor's named stream, row by row.
void fill_normal(StreamView stream,
                 const Parameter& parameter,
                 Slice range,
                 PhiloxKey key,
                 const Tensor& values) {
  const std::int64_t logical_columns = parameter.spec.shape[-1];
  const std::int64_t columns = parameter.shard.shape[-1];
  for (const ShardPart& part : parts_of_range(parameter.shard, range)) {
    const bool has_rows = part.logical.shape.rank() == 2;
    const std::int64_t num_rows = has_rows ? part.logical.shape[0] : 1;
    const auto count = static_cast<std::size_t>(part.logical.shape[-1]);
    const std::int64_t first_row = has_rows ? part.logical.start[0] : 0;
    const std::int64_t first_local_row = has_rows ? part.local.start[0] : 0;
    stream.pool().parallel_for(static_cast<std::size_t>(num_rows), [&](std::size_t task, int) {
      const auto row = static_cast<std::int64_t>(task);
      const auto local =
          static_cast<std::size_t>((first_local_row + row) * columns + part.local.start.back());
      draw_normal(
          values.span<float>().subspan(local - range.begin, count),
          key,
          static_cast<std::size_t>((first_row + row) * logical_columns + part.logical.start.back()),
          parameter.spec.init_std);
    });
  }
}

constexpr int kRoles = 3;  // of parameters, as memory tells them apart

// Groups of parameters in the order in which they stand in memory.
int group_of(const ParameterSpec& spec, Parameters::Biases biases) {
  const int trained = spec.trained ? 0 : kRoles;
  if (is_norm(spec.role)) {
    return trained + 2;
  }
  const bool apart = spec.role == ParameterRole::bias && biases == Parameters::Biases::before_norms;
  return trained + (apart ? 1 : 0);
}

}  // namespace

std::vector<Parameter> Parameters::describe(const ModelConfig& config,
                                            const ModelSlice& slice,
                                            Biases biases) {
  std::vector<Parameter> parameters;
  for (const ParameterSpec& spec : parameter_table(config, slice.layers())) {
    if (slice.holds(spec, config)) {
      parameters.push_back(
          {.spec = spec, .shard = shard_of(spec, config, slice.tensor_rank, slice.tensor_size)});
    }
  }
  std::size_t elements = 0;
  for (int group = 0; group < 2 * kRoles; ++group) {
    for (Parameter& parameter : parameters) {
      if (group_of(parameter.spec, biases) == group) {
        parameter.first_element = elements;
        elements += place_elements(parameter.shard.shape, biases);
      }
    }
  }
  return parameters;
}

std::size_t Parameters::place_elements(const Shape& shape, Biases biases) {
  const DType aligned = biases == Biases::before_norms ? DType::bf16 : DType::f32;
  return Arena::aligned_bytes(aligned, shape) / size_of(aligned);
}

Parameters::Bytes Parameters::bytes(const ModelConfig& config, const Options& options) {
  const ModelSlice slice = held_slice(config, options);
  const std::vector<Parameter> parameters = describe(config, slice);
  Bytes bytes{.weights = element_bytes(parameters)};
  bytes.gradients = options.gradients == Gradients::fp32 ? bytes.weights : 0;
  for (const Parameter& parameter : parameters) {
    if (has_copy(parameter.spec, options.compute)) {
      bytes.copies += Arena::aligned_bytes(DType::bf16, parameter.shard.shape);
    }
    if (parameter.spec.role == ParameterRole::token_embedding && config.tie_embeddings &&
        slice.embedding() && slice.head() && options.gradients == Gradients::fp32) {
      bytes.input_gradient = Arena::aligned_bytes(DType::f32, parameter.shard.shape);
    }
  }
  return bytes;
}

Parameters::Parameters(const ModelConfig& config, const Options& options)
    : slice_(held_slice(config, options)),
      device_(options.device),
      parameters_(describe(config, slice_, options.biases)) {
  if (options.memory == Memory::others) {
    return;
  }
  SL_CHECK(options.biases == Biases::with_matrices, "where biases stand");
  SL_CHECK(options.gradients == Gradients::none || config.trainable.empty(),
           "parameters without gradients in buffers that have one for each");
  const Bytes total = bytes(config, options);
  const Backing backing = backing_of(options.device);
  weights_ = Buffer("weights", total.weights, backing);
  gradients_ = Buffer("gradients", total.gradients, backing);
  copies_ = Buffer("bf16 weights", total.copies, backing);
  std::size_t copies = 0;
  for (Parameter& parameter : parameters_) {
    const Shape& shape = parameter.shard.shape;
    const std::size_t offset = parameter.first_element * sizeof(float);
    parameter.weight = weights_.view(DType::f32, shape, offset);
    if (options.gradients == Gradients::fp32) {
      parameter.gradient = gradients_.view(DType::f32, shape, offset);
    }
    if (has_copy(parameter.spec, options.compute)) {
      parameter.weight_bf16 = copies_.view(DType::bf16, shape, copies);
      copies += Arena::aligned_bytes(DType::bf16, shape);
    }
  }
  if (total.input_gradient > 0) {
    input_gradient_buffer_ = Buffer("input embedding gradient", total.input_gradient, backing);
    input_gradient_buffer_.fill_zero();
    input_gradient_ = input_gradient_buffer_.view(DType::f32, parameters_.front().shard.shape);
  }
  clear_gaps();
}

Tensor Parameters::all_weights() const {
  return weights_.row(DType::f32);
}

Tensor Parameters::all_gradients() const {
  return gradients_.row(DType::f32);
}

// Gaps travel with the ranges they lie in: they are zero, and stay so.
void Parameters::clear_gaps() {
  if (weights_.device() == Device::cuda) {
    weights_.fill_zero();
    gradients_.fill_zero();
    return;
  }
  for (const Parameter& parameter : parameters_) {
    const std::size_t used = parameter.first_element + parameter.weight.num_elements();
    const std::size_t end = parameter.first_element +
                            Arena::aligned_bytes(DType::f32, parameter.shard.shape) / sizeof(float);
    for (const Buffer* buffer : {&weights_, &gradients_}) {
      if (buffer->bytes() > 0) {
        auto* values = reinterpret_cast<float*>(buffer->data());
        std::fill(values + used, values + end, 0.0F);
      }
    }
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

void initialize(StreamView stream,
                const Parameter& parameter,
                Slice range,
                const Tensor& weight,
                std::uint64_t seed) {
  const ParameterSpec& spec = parameter.spec;
  if (weight.dtype() != DType::f32) {
    const Buffer exact =
        make_buffer("initial values", DType::f32, weight.shape(), backing_of(weight.device()));
    initialize(stream, parameter, range, exact.view(DType::f32, weight.shape()), seed);
    cast(stream, exact.view(DType::f32, weight.shape()), weight);
    stream.synchronize();
    return;
  }
  const HostTensor values(weight, HostTensor::Contents::undefined);
  if (spec.init_std > 0.0) {
    fill_normal(stream, parameter, range, philox_key(seed, spec.name), values.tensor());
  } else {
    std::ranges::fill(values.tensor().span<float>(),
                      spec.role == ParameterRole::norm_weight ? 1.0F : 0.0F);
  }
  values.write_back();
}

}  // namespace slackline
