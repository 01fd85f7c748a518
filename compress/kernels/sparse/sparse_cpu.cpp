#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "compress/kernels/sparse/sparse.h"
#include "core/kernels/parallel_ranges.h"

// Plain loops: the elements lie apart, so the time goes into their cache lines, many of which the
// core fetches at once.
namespace slackline::cpu {

namespace {

constexpr std::size_t kIndicesPerTask = 8192;
constexpr std::size_t kElementsPerTask = 65536;
constexpr std::uint32_t kMagnitude = 0x7fffffff;  // bits of a float without its sign
constexpr std::uint32_t kInfinite = 0x7f800000;   // and those of Inf; NaN has more

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

template <typename T>
void tell_non_finite(StreamView stream, const Tensor& values, NonFinite found, const Tensor& kept) {
  float* const x = values.data<float>();
  std::atomic<bool> any{false};
  const auto body = [&](std::size_t begin, std::size_t end) {
    std::uint32_t largest = 0;  // magnitudes as integers have the order of the numbers
    for (std::size_t i = begin; i < end; ++i) {
      largest = std::max(largest, std::bit_cast<std::uint32_t>(x[i]) & kMagnitude);
    }
    if (largest < kInfinite) {
      return;
    }
    any = true;
    for (std::size_t i = begin; found == NonFinite::clear && i < end; ++i) {
      x[i] = std::isfinite(x[i]) ? x[i] : 0.0F;
    }
  };
  parallel_ranges(stream, values.num_elements(), kElementsPerTask, body);
  if (any) {
    *kept.data<T>() = T(std::numeric_limits<float>::quiet_NaN());
  }
}

template void gather_at<float>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void gather_at<BFloat16>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void scatter_at<float>(StreamView, const Scatter&);
template void scatter_at<BFloat16>(StreamView, const Scatter&);
template void subtract_at<float>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void subtract_at<BFloat16>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void tell_non_finite<float>(StreamView, const Tensor&, NonFinite, const Tensor&);
template void tell_non_finite<BFloat16>(StreamView, const Tensor&, NonFinite, const Tensor&);

}  // namespace slackline::cpu
