#include "core/cuda/cuda_memory.h"
#include "core/cuda/map.h"
#include "core/kernels/elementwise/elementwise.h"

namespace slackline::cuda {

namespace {

struct Same {
  __device__ float operator()(float value) const { return value; }
};

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct Scaled {
  float factor;

  __device__ float operator()(float value) const { return factor * value; }
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
void add(StreamView stream, const Tensor& a, const Tensor& b, const Tensor& out) {
  map_elements(stream, Sum{}, a.num_elements(), out.data<T>(), a.data<T>(), b.data<T>());
}

void scale(StreamView stream, const Tensor& x, float factor, const Tensor& out) {
  map_elements(stream, Scaled{factor}, x.num_elements(), out.data<float>(), x.data<float>());
}

template void convert_from<float>(StreamView, const Tensor&, const Tensor&);
template void convert_from<BFloat16>(StreamView, const Tensor&, const Tensor&);
template void add<float>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void add<BFloat16>(StreamView, const Tensor&, const Tensor&, const Tensor&);

}  // namespace slackline::cuda
