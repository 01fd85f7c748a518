#include "compress/kernels/sparse/sparse.h"
#include "core/cuda/map.h"

// One thread for each element kept. An index of a damaged message may be out of range, as the fault
// that tells so is raised later: it is passed over.
namespace slackline::cuda {

namespace {

constexpr unsigned kThreads = 256;

struct Kept {
  std::size_t k;
  std::size_t n;  // of the dense tensor
  const std::uint32_t* indices;
};

__device__ inline std::size_t own_element() {
  return std::size_t{blockIdx.x} * kThreads + threadIdx.x;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) gather_kernel(Kept kept, const float* values, T* to) {
  const std::size_t i = own_element();
  if (i < kept.k) {
    const std::uint32_t at = kept.indices[i];
    to[i] = from_float<T>(at < kept.n ? values[at] : 0.0F);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(Kept kept, const T* from, float scale, bool adds, float* out) {
  const std::size_t i = own_element();
  if (i >= kept.k || kept.indices[i] >= kept.n) {
    return;
  }
  const float value = to_float(from[i]);
  const float scaled = scale == 1.0F ? value : scale * value;
  float& target = out[kept.indices[i]];
  target = adds ? target + scaled : scaled;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) subtract_kernel(Kept kept, const T* sent, float* owed) {
  const std::size_t i = own_element();
  if (i >= kept.k || kept.indices[i] >= kept.n) {
    return;
  }
  const float value = to_float(sent[i]);
  float& target = owed[kept.indices[i]];
  target = fabsf(value) < INFINITY ? target - value : 0.0F;  // neither Inf nor NaN
}

// A thread for each element; all that find one write the same.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    tell_non_finite_kernel(std::size_t n, float* values, bool clears, T* kept) {
  const std::size_t i = own_element();
  if (i < n && !(fabsf(values[i]) < INFINITY)) {
    *kept = from_float<T>(NAN);
    values[i] = clears ? 0.0F : values[i];
  }
}

Kept kept_of(const Tensor& indices, const Tensor& dense) {
  return {.k = indices.num_elements(),
          .n = dense.num_elements(),
          .indices = indices.data<std::uint32_t>()};
}

LaunchShape shape_of(const Tensor& indices) {
  return {.grid = blocks_for(indices.num_elements(), kThreads), .block = kThreads};
}

}  // namespace

template <typename T>
void gather_at(StreamView stream, const Tensor& values, const Tensor& indices, const Tensor& kept) {
  launch(stream,
         shape_of(indices),
         gather_kernel<T>,
         kept_of(indices, values),
         values.data<float>(),
         kept.data<T>());
}

template <typename T>
void scatter_at(StreamView stream, const Scatter& args) {
  launch(stream,
         shape_of(args.indices),
         scatter_kernel<T>,
         kept_of(args.indices, args.out),
         args.kept.data<T>(),
         args.scale,
         args.mode == ScatterMode::add,
         args.out.data<float>());
}

template <typename T>
void subtract_at(StreamView stream,
                 const Tensor& kept,
                 const Tensor& indices,
                 const Tensor& residual) {
  launch(stream,
         shape_of(indices),
         subtract_kernel<T>,
         kept_of(indices, residual),
         kept.data<T>(),
         residual.data<float>());
}

template <typename T>
void tell_non_finite(StreamView stream, const Tensor& values, NonFinite found, const Tensor& kept) {
  const std::size_t n = values.num_elements();
  launch(stream,
         {.grid = blocks_for(n, kThreads), .block = kThreads},
         tell_non_finite_kernel<T>,
         n,
         values.data<float>(),
         found == NonFinite::clear,
         kept.data<T>());
}

template void gather_at<float>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void gather_at<BFloat16>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void scatter_at<float>(StreamView, const Scatter&);
template void scatter_at<BFloat16>(StreamView, const Scatter&);
template void subtract_at<float>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void subtract_at<BFloat16>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void tell_non_finite<float>(StreamView, const Tensor&, NonFinite, const Tensor&);
template void tell_non_finite<BFloat16>(StreamView, const Tensor&, NonFinite, const Tensor&);

}  // namespace slackline::cuda
