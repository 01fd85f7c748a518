#pragma once

#include <algorithm>
#include <cstddef>

#include "core/kernels/simd.h"
// After simd.h, which configures Highway.
#include <hwy/cache_control.h>

// The inner product of matrix products and of attention: a tile of kRows x kColumns sums held in
// registers over all of K, from operands packed so that every load is the next one in memory.
//
// Why not a library's: with the few hundred rows of a micro-batch, every weight is read from
// memory for only as many multiplications as there are rows, and a library call can neither fetch
// and pack the next panel while it multiplies this one nor widen bf16 on the way. Measured on
// Sapphire Rapids, M = 256, weights in memory, all products of GPT-2 124M's layers: 88.5 % of the
// FMA peak, where oneDNN 2.6, single-threaded on the best of twelve grids for each product, has
// 84.0 % (94 % at best, 75 % at worst).
//
// Words: a strip is an A operand of kRows rows (K x kRows packed), a panel is a B operand of
// kColumns columns (K x kColumns packed). Both are padded with zeros to full width.
namespace slackline::gemm {

namespace hn = simd::hn;
using simd::Floats;
using simd::kFloats;
using simd::kLanes;

// 24 accumulators, 3 vectors of B and one of A fit 32 registers; half of that fits 16.
inline constexpr std::size_t kRows = kLanes >= 16 ? 8 : 4;
inline constexpr std::size_t kVectors = 3;
inline constexpr std::size_t kColumns = kVectors * kLanes;

enum class Init { zero, add };  // what a tile's sums start from: zero, or what C holds

// Cache lines of a block of memory that is needed soon, handed out one by one, so that the
// fetching hides behind arithmetic.
class LineWalk {
 public:
  LineWalk() = default;

  LineWalk(const void* from, std::size_t row_bytes, std::size_t stride_bytes, std::size_t rows)
      : line_(static_cast<const char*>(from)),
        lines_per_row_((row_bytes + kLine - 1) / kLine),
        skip_(stride_bytes - lines_per_row_ * kLine),
        left_in_row_(lines_per_row_),
        left_(lines_per_row_ * rows) {}

  [[nodiscard]] bool is_done() const { return left_ == 0; }

  // Fetches one line, if any is left.
  void step() {
    if (left_ == 0) {
      return;
    }
    hwy::Prefetch(line_);
    line_ += kLine;
    --left_;
    if (--left_in_row_ == 0) {
      left_in_row_ = lines_per_row_;
      line_ += skip_;
    }
  }

 private:
  static constexpr std::size_t kLine = 64;

  const char* line_ = nullptr;
  std::size_t lines_per_row_ = 0;
  std::size_t skip_ = 0;  // from the end of one row to the next; may wrap around
  std::size_t left_in_row_ = 0;
  std::size_t left_ = 0;
};

// The operands and target of one tile. Only the first `vectors` vectors of each row of C count: the
// last columns of a matrix need not cost a whole panel.
struct Tile {
  const float* strip = nullptr;
  std::size_t strip_stride = 0;  // 0: packed; else row i of A stands at strip + i * strip_stride
  const float* panel = nullptr;  // 64-byte aligned
  std::size_t K = 0;
  float* c = nullptr;  // kRows x kColumns
  std::size_t c_stride = 0;
  Init init = Init::zero;
  std::size_t vectors = kVectors;
};

// Vectors that cover this many columns of a panel, at most a whole one.
[[nodiscard]] constexpr std::size_t vectors_for(std::size_t columns) {
  return std::min(kVectors, (columns + kLanes - 1) / kLanes);
}

namespace internal {

template <std::size_t kWidth>
struct Sums {
  Floats at[kRows][kWidth];
};

struct PackedStrip {
  const float* HWY_RESTRICT from;

  HWY_INLINE float at(std::size_t k, std::size_t i) const { return from[k * kRows + i]; }
};

// Row-major A is as good as packed: its rows are as many streams, together as long. (A transposed
// A is not: a line is left after half of it is used, and comes back for the next strip.)
struct StripInPlace {
  const float* HWY_RESTRICT from;
  std::size_t stride;

  HWY_INLINE float at(std::size_t k, std::size_t i) const { return from[i * stride + k]; }
};

template <std::size_t kWidth, typename Strip>
HWY_INLINE void add_outer_product(const Strip& strip,
                                  std::size_t k,
                                  const float* HWY_RESTRICT panel,
                                  Sums<kWidth>& sums) {
  Floats b[kWidth];
  for (std::size_t j = 0; j < kWidth; ++j) {
    b[j] = hn::Load(kFloats, panel + j * kLanes);
  }
  for (std::size_t i = 0; i < kRows; ++i) {
    const Floats a_value = simd::splat(strip.at(k, i));
    for (std::size_t j = 0; j < kWidth; ++j) {
      sums.at[i][j] = hn::MulAdd(a_value, b[j], sums.at[i][j]);
    }
  }
}

template <std::size_t kWidth, typename Strip, typename Background>
void multiply_vectors(const Tile& tile, const Strip& strip, Background& background) {
  Sums<kWidth> sums{};
  const float* panel = tile.panel;
  LineWalk c_lines(tile.c, kWidth * kLanes * sizeof(float), tile.c_stride * sizeof(float), kRows);
  std::size_t k = 0;
  for (; k + 4 <= tile.K; k += 4) {
    if (c_lines.is_done()) {
      background.step();
    } else {
      c_lines.step();
    }
    add_outer_product(strip, k, panel, sums);
    add_outer_product(strip, k + 1, panel + kColumns, sums);
    add_outer_product(strip, k + 2, panel + 2 * kColumns, sums);
    add_outer_product(strip, k + 3, panel + 3 * kColumns, sums);
    panel += 4 * kColumns;
  }
  for (; k < tile.K; ++k) {
    add_outer_product(strip, k, panel, sums);
    panel += kColumns;
  }
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < kWidth; ++j) {
      float* to = tile.c + i * tile.c_stride + j * kLanes;
      const Floats sum = sums.at[i][j];
      simd::store(tile.init == Init::add ? hn::Add(simd::load(to), sum) : sum, to);
    }
  }
}

template <typename Strip, typename Background>
void multiply_strip(const Tile& tile, const Strip& strip, Background& background) {
  static_assert(kVectors == 3);
  switch (tile.vectors) {
    case 1:
      multiply_vectors<1>(tile, strip, background);
      break;
    case 2:
      multiply_vectors<2>(tile, strip, background);
      break;
    default:
      multiply_vectors<3>(tile, strip, background);
  }
}

}  // namespace internal

// What is done beside arithmetic: one small step every four sums.
struct NoBackground {
  void before_tile() {}

  void step() {}

  void after_tile() {}
};

// C = strip * panel, or C += it. Fetches C's lines meanwhile, then runs the background.
template <typename Background>
void multiply_tile(const Tile& tile, Background& background) {
  if (tile.strip_stride == 0) {
    internal::multiply_strip(tile, internal::PackedStrip{tile.strip}, background);
  } else {
    const internal::StripInPlace strip{tile.strip, tile.strip_stride};
    internal::multiply_strip(tile, strip, background);
  }
}

// The same without anything beside it. REQUIRES: the strip is packed.
inline void multiply_tile(const Tile& tile) {
  NoBackground none;
  internal::multiply_strip(tile, internal::PackedStrip{tile.strip}, none);
}

}  // namespace slackline::gemm
