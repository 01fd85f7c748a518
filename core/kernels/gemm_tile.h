#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/kernels/simd.h"
// After simd.h, which configures Highway.
#include <hwy/cache_control.h>

// The inner product of matrix products and of attention: a tile of kRows x kColumns sums held in
// registers over all of K, from operands packed so that every load is the next one in memory.
//
// Why not a library's: with the few hundred rows of a micro-batch, every weight is read from
// memory for only as many multiplications as there are rows, and a library call can neither fetch
// the next panel while it multiplies this one nor widen bf16 while it packs. Measured on Sapphire
// Rapids, operands in memory, M = 256: oneDNN 2.6 single-threaded on the best tiles reaches 70-84 %
// of the FMA peak, this 85-93 %.
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

// The operands and target of one tile. Of C only the first `vectors` vectors of each row count:
// the last columns of a matrix need not cost a whole panel.
struct Tile {
  const float* strip = nullptr;
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

template <std::size_t kWidth>
HWY_INLINE void add_outer_product(const float* HWY_RESTRICT strip,
                                  const float* HWY_RESTRICT panel,
                                  Sums<kWidth>& sums) {
  Floats b[kWidth];
  for (std::size_t j = 0; j < kWidth; ++j) {
    b[j] = hn::Load(kFloats, panel + j * kLanes);
  }
  for (std::size_t i = 0; i < kRows; ++i) {
    const Floats a_value = simd::splat(strip[i]);
    for (std::size_t j = 0; j < kWidth; ++j) {
      sums.at[i][j] = hn::MulAdd(a_value, b[j], sums.at[i][j]);
    }
  }
}

template <std::size_t kWidth, typename Background>
void multiply_vectors(const Tile& tile, Background& background) {
  constexpr std::size_t kSteps = 4;  // of k, for each step of the background
  Sums<kWidth> sums{};
  const float* strip = tile.strip;
  const float* panel = tile.panel;
  LineWalk c_lines(tile.c, kWidth * kLanes * sizeof(float), tile.c_stride * sizeof(float), kRows);
  std::size_t k = 0;
  for (; k + kSteps <= tile.K; k += kSteps) {
    if (c_lines.is_done()) {
      background.step();
    } else {
      c_lines.step();
    }
    for (std::size_t step = k; step < k + kSteps; ++step) {
      add_outer_product(strip + step * kRows, panel + step * kColumns, sums);
    }
  }
  for (; k < tile.K; ++k) {
    add_outer_product(strip + k * kRows, panel + k * kColumns, sums);
  }
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < kWidth; ++j) {
      float* to = tile.c + i * tile.c_stride + j * kLanes;
      const Floats sum = sums.at[i][j];
      simd::store(tile.init == Init::add ? hn::Add(simd::load(to), sum) : sum, to);
    }
  }
}

}  // namespace internal

// What is done beside arithmetic: one small step every few sums.
struct NoBackground {
  void before_tile() {}

  void step() {}

  void after_tile() {}
};

// C = strip * panel, or C += it. Fetches C's lines meanwhile, then runs the background.
template <typename Background>
void multiply_tile(const Tile& tile, Background& background) {
  static_assert(kVectors == 3);
  switch (tile.vectors) {
    case 1:
      internal::multiply_vectors<1>(tile, background);
      break;
    case 2:
      internal::multiply_vectors<2>(tile, background);
      break;
    default:
      internal::multiply_vectors<3>(tile, background);
  }
}

inline void multiply_tile(const Tile& tile) {
  NoBackground none;
  multiply_tile(tile, none);
}

}  // namespace slackline::gemm
