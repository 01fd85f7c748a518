#include "core/cuda/map.h"
#include "core/kernels/elementwise/accumulate.h"

namespace slackline::cuda {

namespace {

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct Difference {
  __device__ float operator()(float a, float b) const { return a - b; }
};

struct RoundingError {
  __device__ float operator()(float value) const {
    return value - to_float(from_float<BFloat16>(value));
  }
};

}  // namespace

template <typename T>
void accumulate(StreamView stream, const Tensor& from, const Tensor& to) {
  float* const sums = to.data<float>();
  map_elements(stream, Sum{}, to.num_elements(), sums, sums, from.data<T>());
}

template <typename T>
void subtract(StreamView stream, const Tensor& from, const Tensor& to) {
  float* const differences = to.data<float>();
  map_elements(stream, Difference{}, to.num_elements(), differences, differences, from.data<T>());
}

void keep_bf16_error(StreamView stream, const Tensor& values) {
  float* const errors = values.data<float>();
  map_elements(stream, RoundingError{}, values.num_elements(), errors, errors);
}

template void accumulate<float>(StreamView, const Tensor&, const Tensor&);
template void accumulate<BFloat16>(StreamView, const Tensor&, const Tensor&);
template void subtract<float>(StreamView, const Tensor&, const Tensor&);
template void subtract<BFloat16>(StreamView, const Tensor&, const Tensor&);

}  // namespace slackline::cuda
