#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/kernels/gemm_tile.h"

// Copies a block of a matrix, f32 or bf16, into the layout that gemm_tile.h multiplies: f32,
// to[k * width + j], where k runs along the summed dimension and j across the strip or panel.
namespace slackline::gemm {

// Where element (k, j) stands in the source.
enum class Order {
  k_rows,  // from[k * stride + j]
  j_rows,  // from[j * stride + k]
};

template <typename T>
struct Source {
  const T* from = nullptr;
  std::size_t stride = 0;
  Order order = Order::k_rows;

  [[nodiscard]] const T* at(std::size_t k, std::size_t j) const {
    return order == Order::k_rows ? from + k * stride + j : from + j * stride + k;
  }

  // The same matrix, seen from element (k, j).
  [[nodiscard]] Source from_element(std::size_t k, std::size_t j) const {
    return {at(k, j), stride, order};
  }

  // The lines of its first K x width elements.
  [[nodiscard]] LineWalk lines(std::size_t K, std::size_t width) const {
    const std::size_t across = order == Order::k_rows ? width : K;
    const std::size_t rows = order == Order::k_rows ? K : width;
    return {from, across * sizeof(T), stride * sizeof(T), rows};
  }
};

namespace internal {

// One vector: four elements of each of rows 0, 4, 8, ...
template <typename Tag, typename T>
hn::Vec<Tag> load_every_fourth_row(Tag tag, const T* from, std::size_t stride) {
  if constexpr (hn::MaxLanes(tag) == 4) {
    return load_floats(tag, from);
  } else {
    const hn::Half<Tag> half;
    const T* upper = from + hn::MaxLanes(half) * stride;
    return hn::Combine(
        tag, load_every_fourth_row(half, upper, stride), load_every_fourth_row(half, from, stride));
  }
}

// Writes four rows of to, one vector each: to[k][j] = from[j][k], by transposing 4 x 4 blocks.
template <typename Tag, typename T>
HWY_INLINE void transpose_four(
    Tag tag, const T* from, std::size_t stride, float* to, std::size_t width) {
  const hn::Repartition<double, Tag> pairs;
  const auto row0 = load_every_fourth_row(tag, from, stride);
  const auto row1 = load_every_fourth_row(tag, from + stride, stride);
  const auto row2 = load_every_fourth_row(tag, from + 2 * stride, stride);
  const auto row3 = load_every_fourth_row(tag, from + 3 * stride, stride);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(tag, row0, row1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(tag, row2, row3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(tag, row0, row1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(tag, row2, row3));
  hn::StoreU(hn::BitCast(tag, hn::InterleaveLower(pairs, low01, low23)), tag, to);
  hn::StoreU(hn::BitCast(tag, hn::InterleaveUpper(pairs, low01, low23)), tag, to + width);
  hn::StoreU(hn::BitCast(tag, hn::InterleaveLower(pairs, high01, high23)), tag, to + 2 * width);
  hn::StoreU(hn::BitCast(tag, hn::InterleaveUpper(pairs, high01, high23)), tag, to + 3 * width);
}

template <std::size_t kWidth, typename T>
void pack_element_wise(
    const Source<T>& source, std::size_t k_begin, std::size_t K, std::size_t valid, float* to) {
  for (std::size_t k = k_begin; k < K; ++k) {
    for (std::size_t j = 0; j < kWidth; ++j) {
      to[k * kWidth + j] = j < valid ? static_cast<float>(*source.at(k, j)) : 0.0F;
    }
  }
}

}  // namespace internal

// Packs K x kWidth elements, of which the first `valid` columns exist; the rest becomes zero.
template <std::size_t kWidth, typename T>
void pack(const Source<T>& source, std::size_t K, std::size_t valid, float* to) {
  constexpr hn::CappedTag<float, kWidth> kTag;
  constexpr std::size_t kPart = hn::MaxLanes(kTag);
  static_assert(kWidth % kPart == 0 && kPart >= 4);
  if (valid < kWidth) {
    internal::pack_element_wise<kWidth>(source, 0, K, valid, to);
    return;
  }
  if (source.order == Order::k_rows) {
    for (std::size_t k = 0; k < K; ++k) {
      for (std::size_t j = 0; j < kWidth; j += kPart) {
        hn::StoreU(load_floats(kTag, source.at(k, j)), kTag, to + k * kWidth + j);
      }
    }
    return;
  }
  const std::size_t fours = K / 4 * 4;
  for (std::size_t k = 0; k < fours; k += 4) {
    for (std::size_t j = 0; j < kWidth; j += kPart) {
      internal::transpose_four(kTag, source.at(k, j), source.stride, to + k * kWidth + j, kWidth);
    }
  }
  internal::pack_element_wise<kWidth>(source, fours, K, valid, to);
}

}  // namespace slackline::gemm
