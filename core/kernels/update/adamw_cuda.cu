#include "core/cuda/batch.h"
#include "core/cuda/map.h"
#include "core/kernels/update/adamw_coefficients.h"

// Bound by memory: four streams in, three out, 28 bytes a parameter, and 2 more for a bf16 copy.
// Every rounding is spelled out, so that an element has the same bits whichever way it is read.
namespace slackline::cuda {

namespace {

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

struct Item {
  AdamwCoefficients coefficients;
  std::size_t count;
  AdamwArrays arrays;
};

// One thread for n neighbours.
template <int n>
__global__ void __launch_bounds__(kMapThreads)
    update_kernel(const __grid_constant__ Batch<Item> batch) {
  const BatchPlace place(batch);
  const Item& item = batch.items[place.index];
  const AdamwArrays& arrays = item.arrays;
  const std::size_t first = (std::size_t{place.block} * kMapThreads + threadIdx.x) * n;
  if (first + n <= item.count) {
    State<n> state{load<n>(arrays.weight + first),
                   load<n>(arrays.gradient + first),
                   load<n>(arrays.m + first),
                   load<n>(arrays.v + first)};
    update(item.coefficients, state);
    store<n>(arrays.weight + first, state.weight);
    store<n>(arrays.m + first, state.m);
    store<n>(arrays.v + first, state.v);
    if (arrays.weight_copy != nullptr) {
      store<n>(arrays.weight_copy + first, state.weight);
    }
  } else if (first < item.count) {
    const int rest = static_cast<int>(item.count - first);
    State<n> state{load_part<n>(arrays.weight + first, rest),
                   load_part<n>(arrays.gradient + first, rest),
                   load_part<n>(arrays.m + first, rest),
                   load_part<n>(arrays.v + first, rest)};
    update(item.coefficients, state);
    store_part<n>(arrays.weight + first, state.weight, rest);
    store_part<n>(arrays.m + first, state.m, rest);
    store_part<n>(arrays.v + first, state.v, rest);
    if (arrays.weight_copy != nullptr) {
      store_part<n>(arrays.weight_copy + first, state.weight, rest);
    }
  }
}

template <int n>
void start(StreamView stream, const std::vector<Item>& items) {
  const auto blocks_of = [](const Item& item) {
    return blocks_for(item.count, std::size_t{kMapThreads} * n);
  };
  for_each_batch(items, blocks_of, [&](const Batch<Item>& batch, unsigned blocks) {
    launch(stream, {.grid = blocks, .block = kMapThreads}, update_kernel<n>, batch);
  });
}

}  // namespace

void adamw(StreamView stream, std::span<const AdamwUpdate> updates) {
  std::vector<Item> packed;
  std::vector<Item> single;
  for (const auto& [tensors, step] : updates) {
    const AdamwArrays arrays = arrays_of(tensors);
    const Item item{AdamwCoefficients(step), tensors.weight.num_elements(), arrays};
    const bool aligned =
        are_aligned(arrays.weight, arrays.gradient, arrays.m, arrays.v, arrays.weight_copy);
    (aligned ? packed : single).push_back(item);
  }
  start<kPackSize<float>>(stream, packed);
  start<1>(stream, single);
}

}  // namespace slackline::cuda
