#include "core/kernels/elementwise/gelu.h"
#include "core/kernels/elementwise/gelu_math.h"
#include "core/kernels/parallel_ranges.h"

namespace slackline::cpu {

template <typename T>
void gelu_forward(StreamView stream, const Tensor& x, const Tensor& y) {
  const T* from = x.data<T>();
  T* to = y.data<T>();
  parallel_ranges(
      stream, x.num_elements(), kElementsPerTask, [=](std::size_t begin, std::size_t end) {
        simd::for_each_vector(end - begin, [=](std::size_t i, auto part) {
          simd::store(simd::gelu(simd::load(from + begin + i, part)), to + begin + i, part);
        });
      });
}

template <typename T>
void gelu_backward(StreamView stream, const GeluBackward& args) {
  const T* x = args.x.data<T>();
  const T* dy = args.dy.data<T>();
  T* dx = args.dx.data<T>();
  parallel_ranges(
      stream, args.x.num_elements(), kElementsPerTask, [=](std::size_t begin, std::size_t end) {
        simd::for_each_vector(end - begin, [=](std::size_t offset, auto part) {
          const std::size_t i = begin + offset;
          const simd::Floats slope = simd::gelu_derivative(simd::load(x + i, part));
          simd::store(simd::hn::Mul(simd::load(dy + i, part), slope), dx + i, part);
        });
      });
}

template void gelu_forward<float>(StreamView, const Tensor&, const Tensor&);
template void gelu_forward<BFloat16>(StreamView, const Tensor&, const Tensor&);
template void gelu_backward<float>(StreamView, const GeluBackward&);
template void gelu_backward<BFloat16>(StreamView, const GeluBackward&);

}  // namespace slackline::cpu
