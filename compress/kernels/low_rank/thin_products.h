#pragma once

#include <algorithm>
#include <cstddef>

#include "core/kernels/simd.h"

// Products with a few rows on one side, for one thread: what low-rank factors and Gram-Schmidt are
// made of. Bound by reading the large operand once, not by arithmetic, up to a dozen rows on the
// thin side. All operands row-major f32, rows contiguous.
namespace slackline::cpu {

// Rows of the thin side that a loop keeps in registers, together with rows of the large one.
inline constexpr std::size_t kThinRows = 4;

namespace thin {

using simd::Floats;
namespace hn = simd::hn;

template <std::size_t kRows, std::size_t kThin>
void dots(const float* x, const float* y, std::size_t length, float* out, std::size_t out_stride) {
  Floats sums[kRows][kThin];
  for (auto& row : sums) {
    std::fill_n(row, kThin, simd::zero());
  }
  simd::for_each_vector(length, [&](std::size_t c, auto part) {
    Floats large[kRows];
    for (std::size_t i = 0; i < kRows; ++i) {
      large[i] = simd::load(x + i * length + c, part);
    }
    for (std::size_t j = 0; j < kThin; ++j) {
      const Floats small = simd::load(y + j * length + c, part);
      for (std::size_t i = 0; i < kRows; ++i) {
        sums[i][j] = hn::MulAdd(large[i], small, sums[i][j]);
      }
    }
  });
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < kThin; ++j) {
      out[i * out_stride + j] = simd::sum_lanes(sums[i][j]);
    }
  }
}

template <std::size_t kThin>
void add_combinations(const float* x,
                      std::size_t rows,
                      std::size_t stride,
                      std::size_t columns,
                      const float* p,
                      std::size_t p_stride,
                      float* y) {
  simd::for_each_vector(columns, [&](std::size_t c, auto part) {
    Floats sums[kThin];
    for (std::size_t j = 0; j < kThin; ++j) {
      sums[j] = simd::load(y + j * stride + c, part);
    }
    for (std::size_t i = 0; i < rows; ++i) {
      const Floats large = simd::load(x + i * stride + c, part);
      for (std::size_t j = 0; j < kThin; ++j) {
        sums[j] = hn::MulAdd(simd::splat(p[i * p_stride + j]), large, sums[j]);
      }
    }
    for (std::size_t j = 0; j < kThin; ++j) {
      simd::store(sums[j], y + j * stride + c, part);
    }
  });
}

template <typename Body>
void with_thin_rows(std::size_t count, const Body& body) {
  switch (count) {
    case 1:
      return body(std::integral_constant<std::size_t, 1>{});
    case 2:
      return body(std::integral_constant<std::size_t, 2>{});
    case 3:
      return body(std::integral_constant<std::size_t, 3>{});
    default:
      return body(std::integral_constant<std::size_t, kThinRows>{});
  }
}

}  // namespace thin

// out[i, j] = x[i, :] . y[j, :] for two rows of x at a time, then one. x is (rows, length), y is
// (r, length), out is (rows, r).
inline void dot_rows(const float* x,
                     std::size_t rows,
                     const float* y,
                     std::size_t r,
                     std::size_t length,
                     float* out) {
  for (std::size_t i = 0; i < rows; i += 2) {
    for (std::size_t j = 0; j < r; j += kThinRows) {
      thin::with_thin_rows(std::min(kThinRows, r - j), [&](auto thin_rows) {
        const float* small = y + j * length;
        float* result = out + i * r + j;
        if (i + 1 < rows) {
          thin::dots<2, thin_rows.value>(x + i * length, small, length, result, r);
        } else {
          thin::dots<1, thin_rows.value>(x + i * length, small, length, result, r);
        }
      });
    }
  }
}

// y[j, :] += sum over i of p[i, j] x[i, :], i ascending. x is (rows, length), p is (rows, r), y is
// (r, length). Eight rows and a strip of columns at a time stay in the first cache.
inline void add_combinations(
    const float* x, std::size_t rows, const float* p, std::size_t r, std::size_t length, float* y) {
  constexpr std::size_t kRowsAtOnce = 8;
  constexpr std::size_t kColumnsAtOnce = 512;
  for (std::size_t i = 0; i < rows; i += kRowsAtOnce) {
    const std::size_t count = std::min(kRowsAtOnce, rows - i);
    for (std::size_t c = 0; c < length; c += kColumnsAtOnce) {
      const std::size_t columns = std::min(kColumnsAtOnce, length - c);
      for (std::size_t j = 0; j < r; j += kThinRows) {
        thin::with_thin_rows(std::min(kThinRows, r - j), [&](auto thin_rows) {
          thin::add_combinations<thin_rows.value>(
              x + i * length + c, count, length, columns, p + i * r + j, r, y + j * length + c);
        });
      }
    }
  }
}

// Calls sink(i, c, sum over j of p[i, j] q[j, c ...], part) for every row i and vector of columns,
// four rows at a time. p is (rows, r), q is (r, length).
template <typename Sink>
void for_each_combination(const float* p,
                          std::size_t rows,
                          const float* q,
                          std::size_t r,
                          std::size_t length,
                          const Sink& sink) {
  for (std::size_t i = 0; i < rows; i += kThinRows) {
    thin::with_thin_rows(std::min(kThinRows, rows - i), [&](auto thin_rows) {
      simd::for_each_vector(length, [&](std::size_t c, auto part) {
        thin::Floats sums[thin_rows.value];
        std::fill_n(sums, thin_rows.value, simd::zero());
        for (std::size_t j = 0; j < r; ++j) {
          const thin::Floats small = simd::load(q + j * length + c, part);
          for (std::size_t k = 0; k < thin_rows.value; ++k) {
            sums[k] = thin::hn::MulAdd(simd::splat(p[(i + k) * r + j]), small, sums[k]);
          }
        }
        for (std::size_t k = 0; k < thin_rows.value; ++k) {
          sink(i + k, c, sums[k], part);
        }
      });
    });
  }
}

}  // namespace slackline::cpu
