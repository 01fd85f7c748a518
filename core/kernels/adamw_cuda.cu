#include "core/cuda/map.h"
#include "core/kernels/adamw_coefficients.h"

// Bound by memory: four streams in, three out, 28 bytes a parameter, and 2 more for a bf16 copy.
// Every rounding is spelled out, so that an element has the same bits whichever way it is read.
namespace slackline::cuda {

namespace {

struct Arrays {
  float* weight;
  const float* gradient;
  float* m;
  float* v;
  BFloat16* weight_copy;  // null: none
};

template <int n>
struct State {
  Floats<n> weight;
  Floats<n> gradient;
  Floats<n> m;
  Floats<n> v;
};

template <int n>
__device__ void update(const AdamwCoefficients& c, State<n>& state) {
#pragma unroll
  for (int i = 0; i < n; ++i) {
    const float g = __fmul_rn(state.gradient[i], c.gradient_scale);
    const float m = fmaf(c.beta1, state.m[i], __fmul_rn(c.one_minus_beta1, g));
    const float v = fmaf(c.beta2, state.v[i], __fmul_rn(__fmul_rn(c.one_minus_beta2, g), g));
    const float denominator = fmaf(sqrtf(v), c.root_correction, c.eps);
    const float old = state.weight[i];
    state.m[i] = m;
    state.v[i] = v;
    state.weight[i] = old - fmaf(c.decay, old, __fmul_rn(c.rate, m) / denominator);
  }
}

// One thread for n neighbours.
template <int n>
__global__ void __launch_bounds__(kMapThreads)
    update_kernel(AdamwCoefficients coefficients, std::size_t count, Arrays arrays) {
  const std::size_t first = (std::size_t{blockIdx.x} * kMapThreads + threadIdx.x) * n;
  if (first + n <= count) {
    State<n> state{load<n>(arrays.weight + first),
                   load<n>(arrays.gradient + first),
                   load<n>(arrays.m + first),
                   load<n>(arrays.v + first)};
    update(coefficients, state);
    store<n>(arrays.weight + first, state.weight);
    store<n>(arrays.m + first, state.m);
    store<n>(arrays.v + first, state.v);
    if (arrays.weight_copy != nullptr) {
      store<n>(arrays.weight_copy + first, state.weight);
    }
  } else if (first < count) {
    const int rest = static_cast<int>(count - first);
    State<n> state{load_part<n>(arrays.weight + first, rest),
                   load_part<n>(arrays.gradient + first, rest),
                   load_part<n>(arrays.m + first, rest),
                   load_part<n>(arrays.v + first, rest)};
    update(coefficients, state);
    store_part<n>(arrays.weight + first, state.weight, rest);
    store_part<n>(arrays.m + first, state.m, rest);
    store_part<n>(arrays.v + first, state.v, rest);
    if (arrays.weight_copy != nullptr) {
      store_part<n>(arrays.weight_copy + first, state.weight, rest);
    }
  }
}

template <int n>
void start(StreamView stream,
           const AdamwCoefficients& coefficients,
           std::size_t count,
           const Arrays& arrays) {
  const LaunchShape shape{.grid = blocks_for(count, std::size_t{kMapThreads} * n),
                          .block = kMapThreads};
  launch(stream, shape, update_kernel<n>, coefficients, count, arrays);
}

}  // namespace

void adamw(StreamView stream, const AdamwTensors& tensors, const AdamwStep& step) {
  const AdamwCoefficients coefficients(step);
  const Arrays arrays{tensors.weight.data<float>(),
                      tensors.gradient.data<float>(),
                      tensors.m.data<float>(),
                      tensors.v.data<float>(),
                      tensors.weight_copy.empty() ? nullptr : tensors.weight_copy.data<BFloat16>()};
  const std::size_t count = tensors.weight.num_elements();
  if (are_aligned(arrays.weight, arrays.gradient, arrays.m, arrays.v, arrays.weight_copy)) {
    start<kPackSize<float>>(stream, coefficients, count, arrays);
  } else {
    start<1>(stream, coefficients, count, arrays);
  }
}

}  // namespace slackline::cuda
