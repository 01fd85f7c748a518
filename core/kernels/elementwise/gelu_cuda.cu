#include "core/cuda/map.h"
#include "core/kernels/elementwise/device_gelu.h"
#include "core/kernels/elementwise/gelu.h"

namespace slackline::cuda {

namespace {

struct Forward {
  __device__ float operator()(float x) const { return gelu(x); }
};

struct Backward {
  __device__ float operator()(float x, float dy) const { return dy * gelu_derivative(x); }
};

}  // namespace

template <typename T>
void gelu_forward(StreamView stream, const Tensor& x, const Tensor& y) {
  map_elements(stream, Forward{}, x.num_elements(), y.data<T>(), x.data<T>());
}

template <typename T>
void gelu_backward(StreamView stream, const GeluBackward& args) {
  map_elements(stream,
               Backward{},
               args.x.num_elements(),
               args.dx.data<T>(),
               args.x.data<T>(),
               args.dy.data<T>());
}

template void gelu_forward<float>(StreamView, const Tensor&, const Tensor&);
template void gelu_forward<BFloat16>(StreamView, const Tensor&, const Tensor&);
template void gelu_backward<float>(StreamView, const GeluBackward&);
template void gelu_backward<BFloat16>(StreamView, const GeluBackward&);

}  // namespace slackline::cuda
