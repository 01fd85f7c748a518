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

  [[nodiscard]] std::size_t left() const { return left_; }

  // REQUIRES: left() > 0.
  void prefetch() {
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

// A packed panel, 64-byte aligned.
struct Panel {
  const float* packed = nullptr;

  [[nodiscard]] Floats load(std::size_t k, std::size_t j) const {
    return hn::Load(kFloats, packed + k * kColumns + j * kLanes);
  }
};

// A panel that is packed while the first strip is multiplied by it, which hides the packing.
template <typename T>
struct PanelToPack {
  const T* from = nullptr;  // element (k, j) at from[k * stride + j]
  std::size_t stride = 0;
  float* packed = nullptr;

  [[nodiscard]] Floats load(std::size_t k, std::size_t j) const {
    const Floats values = load_floats(kFloats, from + k * stride + j * kLanes);
    hn::Store(values, kFloats, packed + k * kColumns + j * kLanes);
    return values;
  }
};

// The operands and target of one tile. Of C only the first `vectors` vectors of each row count:
// the last columns of a matrix need not cost a whole panel.
struct Tile {
  const float* strip = nullptr;
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

template <std::size_t kWidth, typename AnyPanel>
HWY_INLINE void add_outer_product(const float* HWY_RESTRICT a,
                                  const AnyPanel& panel,
                                  std::size_t k,
                                  Sums<kWidth>& sums) {
  Floats b[kWidth];
  for (std::size_t j = 0; j < kWidth; ++j) {
    b[j] = panel.load(k, j);
  }
  for (std::size_t i = 0; i < kRows; ++i) {
    const Floats a_value = simd::splat(a[k * kRows + i]);
    for (std::size_t j = 0; j < kWidth; ++j) {
      sums.at[i][j] = hn::MulAdd(a_value, b[j], sums.at[i][j]);
    }
  }
}

template <std::size_t kWidth, typename AnyPanel>
void multiply_vectors(const Tile& tile, const AnyPanel& panel, LineWalk& next, std::size_t lines) {
  constexpr std::size_t kSteps = 4;  // of k, for each line fetched
  Sums<kWidth> sums{};
  const float* a = tile.strip;
  std::size_t k = 0;
  LineWalk c_lines(tile.c, kWidth * kLanes * sizeof(float), tile.c_stride * sizeof(float), kRows);
  lines = std::min(lines, next.left());
  for (; k + kSteps <= tile.K; k += kSteps) {
    if (c_lines.left() > 0) {
      c_lines.prefetch();
    } else if (lines > 0) {
      next.prefetch();
      --lines;
    }
    for (std::size_t step = 0; step < kSteps; ++step) {
      add_outer_product(a, panel, k + step, sums);
    }
  }
  for (; k < tile.K; ++k) {
    add_outer_product(a, panel, k, sums);
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

// C = strip * panel, or C += it. Meanwhile fetches C's lines, then up to `lines` of `next`.
template <typename AnyPanel>
void multiply_tile(const Tile& tile, const AnyPanel& panel, LineWalk& next, std::size_t lines) {
  static_assert(kVectors == 3);
  switch (tile.vectors) {
    case 1:
      internal::multiply_vectors<1>(tile, panel, next, lines);
      break;
    case 2:
      internal::multiply_vectors<2>(tile, panel, next, lines);
      break;
    default:
      internal::multiply_vectors<3>(tile, panel, next, lines);
  }
}

inline void multiply_tile(const Tile& tile, const Panel& panel) {
  LineWalk none;
  multiply_tile(tile, panel, none, 0);
}

}  // namespace slackline::gemm
