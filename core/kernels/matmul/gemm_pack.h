#pragma once

#include <cstddef>

#include "core/kernels/matmul/gemm_tile.h"

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

// Element loads of floats, f32 or widened bf16, for any vector tag.
template <typename Tag>
hn::Vec<Tag> load_floats(Tag tag, const float* from) {
  return hn::LoadU(tag, from);
}

template <typename Tag>
hn::Vec<Tag> load_floats(Tag tag, const BFloat16* from) {
  const hn::Rebind<std::uint16_t, Tag> halves;
  const hn::RebindToUnsigned<Tag> words;
  const auto wide = hn::PromoteTo(words, hn::LoadU(halves, &from->bits));
  return hn::BitCast(tag, hn::ShiftLeft<16>(wide));
}

namespace internal {

struct Range {
  std::size_t k = 0, k_end = 0;
  std::size_t j = 0, j_end = 0;
};

// Four rows of vectors, transposed within blocks of 4 x 4: out[m] holds, in its block b, column
// 4 b + m of the rows.
template <typename Tag>
HWY_INLINE void transpose_within_blocks(Tag tag, const hn::Vec<Tag>* rows, hn::Vec<Tag>* out) {
  const hn::Repartition<double, Tag> pairs;
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(tag, rows[0], rows[1]));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(tag, rows[2], rows[3]));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(tag, rows[0], rows[1]));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(tag, rows[2], rows[3]));
  out[0] = hn::BitCast(tag, hn::InterleaveLower(pairs, low01, low23));
  out[1] = hn::BitCast(tag, hn::InterleaveUpper(pairs, low01, low23));
  out[2] = hn::BitCast(tag, hn::InterleaveLower(pairs, high01, high23));
  out[3] = hn::BitCast(tag, hn::InterleaveUpper(pairs, high01, high23));
}

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

// Writes four rows of to, one vector each: to[k][j] = from[j][k].
template <typename Tag, typename T>
HWY_INLINE void transpose_four(
    Tag tag, const T* from, std::size_t stride, float* to, std::size_t width) {
  const hn::Vec<Tag> rows[4] = {load_every_fourth_row(tag, from, stride),
                                load_every_fourth_row(tag, from + stride, stride),
                                load_every_fourth_row(tag, from + 2 * stride, stride),
                                load_every_fourth_row(tag, from + 3 * stride, stride)};
  hn::Vec<Tag> columns[4];
  transpose_within_blocks(tag, rows, columns);
  for (std::size_t k = 0; k < 4; ++k) {
    hn::StoreU(columns[k], tag, to + k * width);
  }
}

// Blocks b of four vectors, transposed: out[b] holds block b of vectors 0, 1, 2, 3 (512 bits), of
// 0 and 1 (256), or vector 0 (128).
template <typename Tag>
HWY_INLINE void transpose_blocks(Tag tag, const hn::Vec<Tag>* in, hn::Vec<Tag>* out) {
  constexpr std::size_t kBlocks = hn::MaxLanes(tag) / 4;
  if constexpr (kBlocks == 1) {
    out[0] = in[0];
  } else if constexpr (kBlocks == 2) {
    out[0] = hn::ConcatLowerLower(tag, in[1], in[0]);
    out[1] = hn::ConcatUpperUpper(tag, in[1], in[0]);
  } else {
    static_assert(kBlocks == 4);
    const auto low02 = hn::ConcatLowerLower(tag, in[2], in[0]);
    const auto low13 = hn::ConcatLowerLower(tag, in[3], in[1]);
    const auto high02 = hn::ConcatUpperUpper(tag, in[2], in[0]);
    const auto high13 = hn::ConcatUpperUpper(tag, in[3], in[1]);
    out[0] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(low13), low02);
    out[1] = hn::OddEvenBlocks(low13, hn::SwapAdjacentBlocks(low02));
    out[2] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(high13), high02);
    out[3] = hn::OddEvenBlocks(high13, hn::SwapAdjacentBlocks(high02));
  }
}

// kLanes columns of four rows, transposed within blocks.
template <typename T>
HWY_INLINE void load_four_rows(const T* from, std::size_t stride, Floats* out) {
  const Floats rows[4] = {load_floats(kFloats, from),
                          load_floats(kFloats, from + stride),
                          load_floats(kFloats, from + 2 * stride),
                          load_floats(kFloats, from + 3 * stride)};
  transpose_within_blocks(kFloats, rows, out);
}

// The next two functions read every line of the source once: rows a power of two apart evict each
// other from the first-level cache.

// A square of kLanes x kLanes: to[k][j] = from[j][k].
template <typename T>
void transpose_square(const T* from, std::size_t stride, float* to, std::size_t width) {
  constexpr std::size_t kBlocks = kLanes / 4;
  Floats groups[kBlocks][4];
  for (std::size_t g = 0; g < kBlocks; ++g) {
    load_four_rows(from + 4 * g * stride, stride, groups[g]);
  }
  for (std::size_t m = 0; m < 4; ++m) {
    Floats in[kBlocks];
    Floats out[kBlocks];
    for (std::size_t g = 0; g < kBlocks; ++g) {
      in[g] = groups[g][m];
    }
    transpose_blocks(kFloats, in, out);
    for (std::size_t b = 0; b < kBlocks; ++b) {
      hn::StoreU(out[b], kFloats, to + (4 * b + m) * width);
    }
  }
}

// kLanes columns of kRows = kLanes / 2 rows: to[k * kRows + i] = from[i][k], two k a vector.
template <typename T>
void transpose_strip(const T* from, std::size_t stride, float* to) {
  constexpr std::size_t kBlocks = kLanes / 4;
  constexpr std::size_t kGroups = kBlocks / 2;
  Floats groups[kGroups][4];
  for (std::size_t g = 0; g < kGroups; ++g) {
    load_four_rows(from + 4 * g * stride, stride, groups[g]);
  }
  for (std::size_t m = 0; m < 4; m += 2) {
    Floats in[kBlocks];
    Floats out[kBlocks];
    for (std::size_t g = 0; g < kGroups; ++g) {
      in[g] = groups[g][m];
      in[kGroups + g] = groups[g][m + 1];
    }
    transpose_blocks(kFloats, in, out);
    for (std::size_t b = 0; b < kBlocks; ++b) {
      hn::StoreU(out[b], kFloats, to + (4 * b + m) * kRows);
    }
  }
}

// Elements one by one; missing columns become zero.
template <std::size_t kWidth, typename T>
void pack_elements(const Source<T>& source, const Range& range, std::size_t valid, float* to) {
  for (std::size_t k = range.k; k < range.k_end; ++k) {
    for (std::size_t j = range.j; j < range.j_end; ++j) {
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
  const std::size_t whole = valid / kPart * kPart;
  std::size_t k = 0;
  if (source.order == Order::k_rows) {
    for (; k < K; ++k) {
      for (std::size_t j = 0; j < whole; j += kPart) {
        hn::StoreU(load_floats(kTag, source.at(k, j)), kTag, to + k * kWidth + j);
      }
    }
  } else {
    if constexpr (kWidth == kRows && 2 * kRows == kLanes) {
      for (; whole == kRows && k + kLanes <= K; k += kLanes) {
        internal::transpose_strip(source.at(k, 0), source.stride, to + k * kRows);
      }
    } else if constexpr (kPart == kLanes) {
      for (; k + kLanes <= K; k += kLanes) {
        for (std::size_t j = 0; j < whole; j += kLanes) {
          internal::transpose_square(source.at(k, j), source.stride, to + k * kWidth + j, kWidth);
        }
      }
    }
    for (; k + 4 <= K; k += 4) {
      for (std::size_t j = 0; j < whole; j += kPart) {
        internal::transpose_four(kTag, source.at(k, j), source.stride, to + k * kWidth + j, kWidth);
      }
    }
  }
  internal::pack_elements<kWidth>(source, {.k = k, .k_end = K, .j_end = whole}, valid, to);
  internal::pack_elements<kWidth>(source, {.k_end = K, .j = whole, .j_end = kWidth}, valid, to);
}

// to[k * to_stride + j] = from[j * from_stride + k] for k < K and j < width.
// REQUIRES: K is a multiple of 4 and width of kLanes.
struct Transposition {
  const float* from = nullptr;
  std::size_t from_stride = 0;
  float* to = nullptr;
  std::size_t to_stride = 0;
};

inline void transpose(const Transposition& matrix, std::size_t K, std::size_t width) {
  for (std::size_t k = 0; k < K; k += 4) {
    for (std::size_t j = 0; j < width; j += kLanes) {
      internal::transpose_four(kFloats,
                               matrix.from + j * matrix.from_stride + k,
                               matrix.from_stride,
                               matrix.to + k * matrix.to_stride + j,
                               matrix.to_stride);
    }
  }
}

}  // namespace slackline::gemm
