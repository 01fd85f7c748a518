#include <cstring>

#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/parallel_ranges.h"
#include "core/kernels/simd.h"

namespace slackline::cpu {

namespace {

constexpr std::size_t kBytesPerTask = std::size_t{1} << 18U;

}  // namespace

void copy_bytes(StreamView stream, const Tensor& from, const Tensor& to) {
  const auto* source = static_cast<const std::byte*>(from.raw());
  auto* target = static_cast<std::byte*>(to.raw());
  parallel_ranges(stream, from.bytes(), kBytesPerTask, [=](std::size_t begin, std::size_t end) {
    std::memcpy(target + begin, source + begin, end - begin);
  });
}

void fill_zero(StreamView stream, const Tensor& tensor) {
  auto* target = static_cast<std::byte*>(tensor.raw());
  parallel_ranges(stream, tensor.bytes(), kBytesPerTask, [=](std::size_t begin, std::size_t end) {
    std::memset(target + begin, 0, end - begin);
  });
}

// From T to the other of the two float types.
template <typename T>
void convert_from(StreamView stream, const Tensor& from, const Tensor& to) {
  using Target = std::conditional_t<kDTypeOf<T> == DType::f32, BFloat16, float>;
  const T* source = from.data<T>();
  Target* target = to.data<Target>();
  parallel_ranges(
      stream, from.num_elements(), kElementsPerTask, [=](std::size_t begin, std::size_t end) {
        simd::for_each_vector(end - begin, [=](std::size_t i, auto part) {
          simd::store(simd::load(source + begin + i, part), target + begin + i, part);
        });
      });
}

template <typename T>
void add(StreamView stream, const Tensor& a, const Tensor& b, const Tensor& out) {
  const T* left = a.data<T>();
  const T* right = b.data<T>();
  T* sum = out.data<T>();
  parallel_ranges(
      stream, a.num_elements(), kElementsPerTask, [=](std::size_t begin, std::size_t end) {
        simd::for_each_vector(end - begin, [=](std::size_t offset, auto part) {
          const std::size_t i = begin + offset;
          simd::store(simd::hn::Add(simd::load(left + i, part), simd::load(right + i, part)),
                      sum + i,
                      part);
        });
      });
}

void scale(StreamView stream, const Tensor& x, float factor, const Tensor& out) {
  const float* source = x.data<float>();
  float* target = out.data<float>();
  parallel_ranges(
      stream, x.num_elements(), kElementsPerTask, [=](std::size_t begin, std::size_t end) {
        simd::for_each_vector(end - begin, [=](std::size_t offset, auto part) {
          const std::size_t i = begin + offset;
          simd::store(
              simd::hn::Mul(simd::splat(factor), simd::load(source + i, part)), target + i, part);
        });
      });
}

template void convert_from<float>(StreamView, const Tensor&, const Tensor&);
template void convert_from<BFloat16>(StreamView, const Tensor&, const Tensor&);
template void add<float>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void add<BFloat16>(StreamView, const Tensor&, const Tensor&, const Tensor&);

}  // namespace slackline::cpu
