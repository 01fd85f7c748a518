#include "core/cuda/cuda_memory.h"
#include "core/cuda/map.h"
#include "core/kernels/elementwise/elementwise.h"

namespace slackline::cuda {

namespace {

struct Difference {
  __device__ float operator()(float a, float b) const { return a - b; }
};

struct Scaled {
  float factor;

  __device__ float operator()(float value) const { return factor * value; }
};

struct RoundingError {
  __device__ float operator()(float value) const {
    return value - to_float(from_float<BFloat16>(value));
  }
};

}  // namespace

void copy_bytes(StreamView stream, const Tensor& from, const Tensor& to) {
  copy(stream.cuda().handle(), to.raw(), from.raw(), from.bytes());
}

void fill_zero(StreamView stream, const Tensor& tensor) {
  SL_CUDA_CHECK(cudaMemsetAsync(tensor.raw(), 0, tensor.bytes(), stream.cuda().handle()));
}

// To the other type.
template <typename T>
void convert_from(StreamView stream, const Tensor& from, const Tensor& to) {
  using Other = std::conditional_t<std::is_same_v<T, float>, BFloat16, float>;
  map_elements(stream, Same{}, from.num_elements(), to.data<Other>(), from.data<T>());
}

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

void scale(StreamView stream, const Tensor& x, float factor, const Tensor& out) {
  map_elements(stream, Scaled{factor}, x.num_elements(), out.data<float>(), x.data<float>());
}

void keep_bf16_error(StreamView stream, const Tensor& values) {
  float* const errors = values.data<float>();
  map_elements(stream, RoundingError{}, values.num_elements(), errors, errors);
}

template void convert_from<float>(StreamView, const Tensor&, const Tensor&);
template void convert_from<BFloat16>(StreamView, const Tensor&, const Tensor&);
template void accumulate<float>(StreamView, const Tensor&, const Tensor&);
template void accumulate<BFloat16>(StreamView, const Tensor&, const Tensor&);
template void subtract<float>(StreamView, const Tensor&, const Tensor&);
template void subtract<BFloat16>(StreamView, const Tensor&, const Tensor&);

}  // namespace slackline::cuda
