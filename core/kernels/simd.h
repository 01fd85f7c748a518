#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// Highway pairs AES with SSE4 and up, which -march=x86-64-v3 does not promise. We use neither, and
// without this a portable AVX2 binary would fall back to SSSE3.
#define HWY_DISABLE_PCLMUL_AES 1
#define HWY_COMPILE_ONLY_STATIC 1
// Where this is the baseline, 1.0.3 truncates to bytes by the wrong permutation (kernel_tests).
#define HWY_DISABLED_TARGETS HWY_AVX3_DL
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "core/tensor/dtype.h"

// What the CPU kernels say in vectors: arrays of float or BFloat16, seen as vectors of floats.
// A thin layer over Google Highway with static dispatch: the target is what -march allows, so
// hn:: calls stand in ordinary functions. Only files of CPU kernels and benchmarks include this.
namespace slackline::simd {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using WordTag = hn::RebindToUnsigned<FloatTag>;           // 32-bit words, as many as floats
using HalfWordTag = hn::Rebind<std::uint16_t, FloatTag>;  // 16-bit words, as many as floats
using Floats = hn::Vec<FloatTag>;
using Words = hn::Vec<WordTag>;

inline constexpr FloatTag kFloats;
inline constexpr WordTag kWords;
inline constexpr HalfWordTag kHalfWords;
inline constexpr std::size_t kLanes = hn::MaxLanes(kFloats);

// How much of a vector a load or store touches. First{n} touches exactly n < kLanes elements;
// lanes beyond them read as zero.
struct Full {};

struct First {
  std::size_t count;
};

[[nodiscard]] inline Floats zero() {
  return hn::Zero(kFloats);
}

[[nodiscard]] inline Floats splat(float value) {
  return hn::Set(kFloats, value);
}

[[nodiscard]] inline Floats load(const float* from, Full = {}) {
  return hn::LoadU(kFloats, from);
}

[[nodiscard]] inline Floats widen(hn::Vec<HalfWordTag> bits) {
  return hn::BitCast(kFloats, hn::ShiftLeft<16>(hn::PromoteTo(kWords, bits)));
}

[[nodiscard]] inline Floats load(const BFloat16* from, Full = {}) {
  return widen(hn::LoadU(kHalfWords, &from->bits));
}

// The bf16 bits of each lane, rounded to nearest, ties to even; a NaN stays a quiet NaN: exactly
// BFloat16(float). Highway's own DemoteTo truncates.
[[nodiscard]] inline hn::Vec<HalfWordTag> narrow(Floats values) {
  const Words word = hn::BitCast(kWords, values);
  const Words odd = hn::And(hn::ShiftRight<16>(word), hn::Set(kWords, 1));
  const Words rounded = hn::Add(word, hn::Add(odd, hn::Set(kWords, 0x7fff)));
  const Words quiet = hn::Or(word, hn::Set(kWords, 0x400000));
  const auto is_nan = hn::RebindMask(kWords, hn::IsNaN(values));
  const Words kept = hn::IfThenElse(is_nan, quiet, rounded);
  return hn::TruncateTo(kHalfWords, hn::ShiftRight<16>(kept));
}

inline void store(Floats values, float* to, Full = {}) {
  hn::StoreU(values, kFloats, to);
}

inline void store(Floats values, BFloat16* to, Full = {}) {
  hn::StoreU(narrow(values), kHalfWords, &to->bits);
}

// Tails go through a copy: masked memory accesses touch the bytes beyond the mask on most targets.
template <typename T>
[[nodiscard]] Floats load(const T* from, First first) {
  alignas(64) T copy[kLanes] = {};
  std::memcpy(copy, from, first.count * sizeof(T));
  return load(copy);
}

template <typename T>
void store(Floats values, T* to, First first) {
  alignas(64) T copy[kLanes];
  store(values, copy);
  std::memcpy(to, copy, first.count * sizeof(T));
}

// Zero beyond the elements that `part` covers, for sums over what was computed from a tail.
[[nodiscard]] inline Floats keep(Floats values, Full) {
  return values;
}

[[nodiscard]] inline Floats keep(Floats values, First first) {
  return hn::IfThenElseZero(hn::FirstN(kFloats, first.count), values);
}

// The values a store to T and a load would give back.
template <typename T>
[[nodiscard]] Floats round_to(Floats values) {
  if constexpr (kDTypeOf<T> == DType::bf16) {
    return widen(narrow(values));
  } else {
    return values;
  }
}

// Over the lanes, in a fixed order (a tree).
[[nodiscard]] inline float sum_lanes(Floats values) {
  return hn::GetLane(hn::SumOfLanes(kFloats, values));
}

[[nodiscard]] inline float max_lanes(Floats values) {
  return hn::GetLane(hn::MaxOfLanes(kFloats, values));
}

// Walks over [0, count) in vectors: body(index, Full{}) as long as whole ones fit, then
// body(index, First{rest}) for the tail. One generic lambda serves both:
//   for_each_vector(n, [&](std::size_t i, auto part) { store(f(load(x + i, part)), y + i, part);
//   });
template <typename Body>
void for_each_vector(std::size_t count, const Body& body) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    body(i, Full{});
  }
  if (i < count) {
    body(i, First{count - i});
  }
}

// to[i] += from[i]
template <typename T>
void add_elements(const T* from, float* to, std::size_t count) {
  for_each_vector(count, [=](std::size_t i, auto part) {
    store(hn::Add(load(to + i, part), load(from + i, part)), to + i, part);
  });
}

// values[i] *= factor
inline void scale_elements(float* values, std::size_t count, float factor) {
  for_each_vector(count, [=](std::size_t i, auto part) {
    store(hn::Mul(load(values + i, part), splat(factor)), values + i, part);
  });
}

}  // namespace slackline::simd
