#include "compress/kernels/sparse/elias_fano.h"

#include <limits>
#include <string>

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"
#include "core/tensor/arena.h"

namespace slackline {

SL_BACKENDS(void elias_fano_encode(
    StreamView stream, const Tensor& indices, const EliasFano& code, const Tensor& words))
SL_BACKENDS(void elias_fano_decode(StreamView stream,
                                   const Tensor& words,
                                   const EliasFano& code,
                                   const FaultNote& note,
                                   const Tensor& indices))

namespace {

EliasFano checked_code(const Tensor& indices, std::size_t n, const Tensor& words) {
  const EliasFano code{.n = n, .k = indices.num_elements()};
  SL_CHECK(code.k <= n && n <= std::numeric_limits<std::uint32_t>::max(),
           std::to_string(code.k) + " indices below " + std::to_string(n));
  check_operand(indices, {"elias_fano indices", DType::u32, indices.shape()});
  check_operand(words, {"elias_fano words", DType::u32, {static_cast<std::int64_t>(code.words())}});
  SL_CHECK_EQ(reinterpret_cast<std::uintptr_t>(words.raw()) % sizeof(std::uint32_t), 0U);
  return code;
}

}  // namespace

void elias_fano_encode(StreamView stream,
                       const Tensor& indices,
                       std::size_t n,
                       const Tensor& words) {
  const EliasFano code = checked_code(indices, n, words);
  if (code.k > 0) {
    SL_BACKEND(stream, elias_fano_encode, stream, indices, code, words);
  }
}

void elias_fano_decode(StreamView stream,
                       const Tensor& words,
                       std::size_t n,
                       const FaultNote& note,
                       const Tensor& indices) {
  const EliasFano code = checked_code(indices, n, words);
  if (code.k > 0) {
    SL_BACKEND(stream, elias_fano_decode, stream, words, code, note, indices);
  }
}

std::size_t elias_fano_workspace_bytes(const EliasFano& code) {
  return Arena::aligned_bytes(DType::u32, {static_cast<std::int64_t>(num_upper_ranges(code))});
}

}  // namespace slackline
