#include <cstring>

#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/for_each_element.h"
#include "core/kernels/parallel_ranges.h"

namespace slackline::cpu {

namespace {

namespace hn = simd::hn;
using simd::Floats;

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
  simd::for_each_element(stream, from.num_elements(), [=](std::size_t i, auto part) {
    simd::store(simd::load(source + i, part), target + i, part);
  });
}

template <typename T>
void accumulate(StreamView stream, const Tensor& from, const Tensor& to) {
  const T* addends = from.data<T>();
  float* sums = to.data<float>();
  simd::for_each_element(stream, to.num_elements(), [=](std::size_t i, auto part) {
    const Floats sum = hn::Add(simd::load(sums + i, part), simd::load(addends + i, part));
    simd::store(sum, sums + i, part);
  });
}

template <typename T>
void subtract(StreamView stream, const Tensor& from, const Tensor& to) {
  const T* subtrahends = from.data<T>();
  float* differences = to.data<float>();
  simd::for_each_element(stream, to.num_elements(), [=](std::size_t i, auto part) {
    const Floats difference =
        hn::Sub(simd::load(differences + i, part), simd::load(subtrahends + i, part));
    simd::store(difference, differences + i, part);
  });
}

void scale(StreamView stream, const Tensor& x, float factor, const Tensor& out) {
  const float* source = x.data<float>();
  float* target = out.data<float>();
  simd::for_each_element(stream, x.num_elements(), [=](std::size_t i, auto part) {
    simd::store(hn::Mul(simd::splat(factor), simd::load(source + i, part)), target + i, part);
  });
}

void keep_bf16_error(StreamView stream, const Tensor& values) {
  float* errors = values.data<float>();
  simd::for_each_element(stream, values.num_elements(), [=](std::size_t i, auto part) {
    const Floats value = simd::load(errors + i, part);
    simd::store(hn::Sub(value, simd::round_to<BFloat16>(value)), errors + i, part);
  });
}

template void convert_from<float>(StreamView, const Tensor&, const Tensor&);
template void convert_from<BFloat16>(StreamView, const Tensor&, const Tensor&);
template void accumulate<float>(StreamView, const Tensor&, const Tensor&);
template void accumulate<BFloat16>(StreamView, const Tensor&, const Tensor&);
template void subtract<float>(StreamView, const Tensor&, const Tensor&);
template void subtract<BFloat16>(StreamView, const Tensor&, const Tensor&);

}  // namespace slackline::cpu
