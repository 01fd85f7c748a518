#include <cmath>

#include "compress/kernels/sparse/sparse.h"
#include "core/kernels/parallel_ranges.h"

// Plain loops: the elements lie apart, so the time goes into their cache lines, many of which the
// core fetches at once.
namespace slackline::cpu {

namespace {

constexpr std::size_t kIndicesPerTask = 8192;

template <typename T>
float scaled(T kept, float scale) {
  const auto value = static_cast<float>(kept);
  return scale == 1.0F ? value : scale * value;  // a product would flush denormals
}

}  // namespace

template <typename T>
void gather_at(StreamView stream, const Tensor& values, const Tensor& indices, const Tensor& kept) {
  const float* from = values.data<float>();
  const auto* at = indices.data<std::uint32_t>();
  T* to = kept.data<T>();
  const auto body = [=](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      to[i] = T(from[at[i]]);
    }
  };
  parallel_ranges(stream, indices.num_elements(), kIndicesPerTask, body);
}

template <typename T>
void scatter_at(StreamView stream, const Scatter& args) {
  const T* from = args.kept.data<T>();
  const auto* at = args.indices.data<std::uint32_t>();
  float* to = args.out.data<float>();
  const float scale = args.scale;
  const bool adds = args.mode == ScatterMode::add;
  const auto body = [=](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const float value = scaled(from[i], scale);
      float& target = to[at[i]];
      target = adds ? target + value : value;
    }
  };
  parallel_ranges(stream, args.indices.num_elements(), kIndicesPerTask, body);
}

template <typename T>
void subtract_at(StreamView stream,
                 const Tensor& kept,
                 const Tensor& indices,
                 const Tensor& residual) {
  const T* sent = kept.data<T>();
  const auto* at = indices.data<std::uint32_t>();
  float* owed = residual.data<float>();
  const auto body = [=](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const auto value = static_cast<float>(sent[i]);
      float& target = owed[at[i]];
      target = std::isfinite(value) ? target - value : 0.0F;
    }
  };
  parallel_ranges(stream, indices.num_elements(), kIndicesPerTask, body);
}

template void gather_at<float>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void gather_at<BFloat16>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void scatter_at<float>(StreamView, const Scatter&);
template void scatter_at<BFloat16>(StreamView, const Scatter&);
template void subtract_at<float>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void subtract_at<BFloat16>(StreamView, const Tensor&, const Tensor&, const Tensor&);

}  // namespace slackline::cpu
