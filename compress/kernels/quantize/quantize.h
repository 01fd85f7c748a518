#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "compress/kernels/quantize/scale_of.h"
#include "core/rng.h"
#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"
#include "core/tensor/workers.h"

namespace slackline {

// How a matrix is held in few bits an element. With f = bits - 1 and S the scale of an element, its
// code c stands for (c - 2^f) / 2^f * S, under ScaleOf::both for (c - 2^f + 1/2) / 2^f * S: exact
// in f32.
struct QuantizedFormat {
  int bits = 8;  // one of kCodeWidths
  ScaleOf shared = ScaleOf::token;
  std::int64_t group = 0;  // of ScaleOf::group

  // Says by how much of a code levels are higher than multiples of a step.
  [[nodiscard]] constexpr float offset() const { return shared == ScaleOf::both ? 0.5F : 0.0F; }

  [[nodiscard]] std::int64_t num_scales(std::int64_t rows, std::int64_t columns) const;
  [[nodiscard]] std::int64_t row_bytes(std::int64_t columns) const;
};

struct QuantizedMatrix {
  QuantizedFormat format{};
  // bf16 (num_scales): by column, by row, by row and group, or rows before columns.
  Tensor scales{};
  // u8 (rows, row_bytes): a row's codes one behind the other, low bits first, those of 3 bits
  // across bytes; what is left of its last byte holds codes of zero, as far as they fit.
  Tensor packed{};
};

// Names the random numbers of a matrix: element e = first_element + row * columns + column takes 16
// bits, half e % 8 (low halves first) of the words that core/rng.h's dropout_words gives for block
// e / 8 of sample `message`.
struct RoundingKey {
  PhiloxKey stream{};
  std::uint64_t step = 0;
  std::uint64_t message = 0;        // tells apart the messages of a step that are added up
  std::uint64_t first_element = 0;  // of the matrix, where it is a part of a larger one
};

// S = max|x| over the elements that share it, rounded to bf16; c - 2^f = x * (2^f / S), rounded and
// clipped to [-2^f, 2^f - 1]. Rounds to nearest, ties to even, or with a key up or down at random
// so that the mean of many is x, to 2^-16 of a step; multiples of a step never move. The quotient
// is rounded to float: only where S is a power of two is what would be a tie always taken for one.
// Scales below 2^-119 count as zero: so do their elements. An Inf, a NaN or a magnitude of 2^127 or
// more makes its scale Inf or NaN, and so all that shares it.
//
// Under ScaleOf::both S = r[row] c[column]. With R and C the mean squares of rows and columns, A
// that of all, and k = normal_reach(): r = k sqrt(R) and c = sqrt(C / A), each rounded to bf16. A
// matrix whose elements have deviations a[row] b[column] has such scales; of normal elements the
// levels lose least, and what lies beyond the last one is clipped. c - 2^f = x * (2^f / S) - 1/2,
// rounded. Rows below 2^-66 and columns below 2^-52 of the others count as zero; a norm that is not
// below 2^127 makes all scales Inf or NaN. Zero becomes the level next above it.
// The same bits for any number of threads.
struct Quantize {
  Tensor x{};    // f32 (rows, columns); at least one column
  Tensor sum{};  // as x; where there is one, sum += x first, and it is quantized in place of x
  QuantizedMatrix to{};
  std::optional<RoundingKey> stochastic{};
};

// The most that evenly spaced levels stand for, with which normal values of deviation 1 lose least
// (J. Max, Quantizing for minimum distortion, 1960).
constexpr double normal_reach(int bits) {
  return bits == 2 ? 1.9914 : bits == 3 ? 2.3440 : bits == 4 ? 2.6816 : 3.9373;
}

void quantize(StreamView stream, const Quantize& args);

[[nodiscard]] std::size_t quantize_workspace_bytes(ScaleOf shared,
                                                   std::int64_t rows,
                                                   std::int64_t columns,
                                                   const Workers& workers);

enum class Update { write, add, subtract };

// Calls body with the update as a constant: std::integral_constant<Update, update>.
template <typename Body>
void with_update(Update update, const Body& body) {
  update == Update::write ? body(std::integral_constant<Update, Update::write>())
  : update == Update::add ? body(std::integral_constant<Update, Update::add>())
                          : body(std::integral_constant<Update, Update::subtract>());
}

// out = decoded, out += decoded or out -= decoded, rounded once; f32 (rows, columns).
void dequantize(StreamView stream,
                const QuantizedMatrix& from,
                const Tensor& out,
                Update update = Update::write);

}  // namespace slackline
