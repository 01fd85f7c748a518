#include "core/cuda/map.h"
#include "core/kernels/elementwise/bias_gradient.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/matmul/matmul.h"
#include "core/kernels/matmul/matmul_products.h"

// A product with its epilogue in one, or where there is none of that kind, the epilogue after it.
// The library writes column sums and cannot add them to a bias's gradient: that is a launch of its
// own, of N elements.
namespace slackline::cuda {

namespace {

// The tanh form of GELU, as core/kernels/elementwise/gelu_math.h has it in vectors.
struct GeluSigmoid {
  float s;          // sigmoid(2 u)
  float e_times_s;  // 1 - s
};

constexpr float kGeluTwoRootTwoOverPi = 1.5957691216057308F;  // 2 sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715F;

__device__ inline GeluSigmoid gelu_sigmoid(float x) {
  constexpr float kMaxExponent = 88.0F;  // e stays finite; s is below 1e-38 there
  const float exponent = -kGeluTwoRootTwoOverPi * x * fmaf(kGeluCubic, x * x, 1.0F);
  // Not fminf, which would make a number of a NaN.
  const float e = expf(exponent > kMaxExponent ? kMaxExponent : exponent);
  const float s = 1.0F / (1.0F + e);
  return {s, e * s};
}

__device__ inline float gelu(float x) {
  return x * gelu_sigmoid(x).s;
}

__device__ inline float gelu_derivative(float x) {
  const GeluSigmoid sigmoid = gelu_sigmoid(x);
  const float slope = kGeluTwoRootTwoOverPi * fmaf(3.0F * kGeluCubic, x * x, 1.0F);
  return fmaf(x * sigmoid.s, sigmoid.e_times_s * slope, sigmoid.s);
}

// What follows the sum in matmul.h, on C as the product left it. Null pointers: not asked for.
struct Epilogue {
  std::int64_t num_columns;
  const void* bias;
  bool bias_is_bf16;
  void* gelu_output;
  bool gelu_output_is_bf16;
  const void* gelu_input;
  bool gelu_input_is_bf16;
};

__device__ inline float read(const void* from, bool is_bf16, std::int64_t at) {
  return is_bf16 ? to_float(static_cast<const BFloat16*>(from)[at])
                 : static_cast<const float*>(from)[at];
}

template <typename C>
__global__ void __launch_bounds__(kMapThreads)
    epilogue_kernel(Epilogue epilogue, std::int64_t count, C* c) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kMapThreads + threadIdx.x;
  if (at >= count) {
    return;
  }
  float value = to_float(c[at]);
  if (epilogue.bias != nullptr) {
    value += read(epilogue.bias, epilogue.bias_is_bf16, at % epilogue.num_columns);
  }
  if (epilogue.gelu_output != nullptr) {
    const float result = gelu(to_float(from_float<C>(value)));
    if (epilogue.gelu_output_is_bf16) {
      static_cast<BFloat16*>(epilogue.gelu_output)[at] = from_float<BFloat16>(result);
    } else {
      static_cast<float*>(epilogue.gelu_output)[at] = result;
    }
  }
  if (epilogue.gelu_input != nullptr) {
    value *= gelu_derivative(read(epilogue.gelu_input, epilogue.gelu_input_is_bf16, at));
  }
  c[at] = from_float<C>(value);
}

bool is_bf16(const Tensor& tensor) {
  return tensor.dtype() == DType::bf16;
}

template <typename C>
void apply_epilogue(StreamView stream, const MatmulArgs& args) {
  const Epilogue epilogue{
      .num_columns = args.c.dim(1),
      .bias = args.bias.raw(),
      .bias_is_bf16 = is_bf16(args.bias),
      .gelu_output = args.gelu_output.raw(),
      .gelu_output_is_bf16 = is_bf16(args.gelu_output),
      .gelu_input = args.gelu_input.raw(),
      .gelu_input_is_bf16 = is_bf16(args.gelu_input),
  };
  const LaunchShape shape{.grid = blocks_for(args.c.num_elements(), kMapThreads),
                          .block = kMapThreads};
  launch(stream,
         shape,
         epilogue_kernel<C>,
         epilogue,
         static_cast<std::int64_t>(args.c.num_elements()),
         args.c.data<C>());
}

void multiply_with_bias_gradient(StreamView stream, const MatmulArgs& args) {
  ArenaScope scratch(stream.workspace());
  const Tensor sums = scratch.allocate(DType::f32, args.bias_gradient.shape());
  if (product_with_column_sums(stream, args, sums)) {
    slackline::accumulate(stream, sums, args.bias_gradient);
  } else {
    plain_product(stream, args);
    slackline::bias_gradient(stream, args.b, args.bias_gradient);
  }
}

}  // namespace

void matmul(StreamView stream, const MatmulArgs& args) {
  const bool has_epilogue =
      !args.bias.empty() || !args.gelu_output.empty() || !args.gelu_input.empty();
  if (!args.bias_gradient.empty()) {
    multiply_with_bias_gradient(stream, args);
  } else if (!has_epilogue) {
    plain_product(stream, args);
  } else if (!fused_product(stream, args)) {
    plain_product(stream, args);
    is_bf16(args.c) ? apply_epilogue<BFloat16>(stream, args) : apply_epilogue<float>(stream, args);
  }
}

}  // namespace slackline::cuda
