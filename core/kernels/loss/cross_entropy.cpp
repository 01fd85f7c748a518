#include "core/kernels/loss/cross_entropy.h"

#include <algorithm>
#include <string>

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS(void softmax_statistics(StreamView stream, const SoftmaxStatistics& args))
SL_BACKENDS_OF_TYPE(void softmax_loss(StreamView stream, const SoftmaxLoss& args))
SL_BACKENDS_OF_TYPE(void softmax_cross_entropy(StreamView stream, const SoftmaxCrossEntropy& args))

namespace {

// Each chunk reads and writes the table's gradient once and reads the table twice, so chunks are as
// large as memory may reasonably hold: 320 tokens of GPT-2's vocabulary, where that traffic hides
// behind the products; on a device, whose products are faster against its memory, 5336.
constexpr std::int64_t kChunkBytes = std::int64_t{64} << 20U;
constexpr std::int64_t kDeviceChunkBytes = std::int64_t{1} << 30U;
constexpr std::int64_t kChunkMultiple = 8;

// cuBLASLt's fast kernels for bf16 take rows that begin at multiples of 16 bytes; a multiple of a
// cache line is as good for the others.
constexpr std::int64_t kDeviceRowMultiple = 64;

void check_rows(const Tensor& logits, std::int64_t row) {
  SL_CHECK(row == 0 || row >= logits.dim(1), "rows of logits that lie in each other");
}

}  // namespace

void softmax_statistics(StreamView stream, const SoftmaxStatistics& args) {
  SL_CHECK_EQ(args.logits.shape().rank(), 2);
  check_rows(args.logits, args.row);
  const std::int64_t N = args.logits.dim(0);
  check_operand(args.logits, {"softmax_statistics logits", DType::f32, args.logits.shape()});
  check_operand(args.targets, {"softmax_statistics targets", DType::i32, Shape{N}});
  check_operand(args.statistics,
                {"softmax_statistics statistics", DType::f32, Shape{N, kSoftmaxStatistics}});
  SL_BACKEND(stream, softmax_statistics, stream, args);
}

void softmax_loss(StreamView stream, const SoftmaxLoss& args) {
  SL_CHECK_EQ(args.exponentials.shape().rank(), 2);
  SL_CHECK_EQ(args.statistics.shape().rank(), 3);
  check_rows(args.exponentials, args.row);
  const std::int64_t N = args.exponentials.dim(0);
  const std::int64_t R = args.statistics.dim(0);
  check_operand(args.exponentials,
                {"softmax_loss exponentials", DType::f32, args.exponentials.shape()});
  check_operand(args.targets, {"softmax_loss targets", DType::i32, Shape{N}});
  check_operand(args.statistics,
                {"softmax_loss statistics", DType::f32, Shape{R, N, kSoftmaxStatistics}});
  check_operand(args.losses, {"softmax_loss losses", DType::f32, Shape{N}});
  SL_CHECK(args.rank >= 0 && args.rank < R,
           "rank " + std::to_string(args.rank) + " of " + std::to_string(R));
  const DType dtype = args.d_logits.empty() ? DType::f32 : args.d_logits.dtype();
  if (!args.d_logits.empty()) {
    check_operand(args.d_logits, {"softmax_loss d_logits", dtype, args.exponentials.shape()});
  }
  SL_DISPATCH(stream, dtype, softmax_loss, stream, args);
}

void softmax_cross_entropy(StreamView stream, const SoftmaxCrossEntropy& args) {
  SL_CHECK_EQ(args.logits.shape().rank(), 2);
  check_rows(args.logits, args.row);
  const std::int64_t N = args.logits.dim(0);
  check_operand(args.logits, {"softmax_cross_entropy logits", DType::f32, args.logits.shape()});
  check_operand(args.targets, {"softmax_cross_entropy targets", DType::i32, Shape{N}});
  check_operand(args.losses, {"softmax_cross_entropy losses", DType::f32, Shape{N}});
  const DType dtype = args.d_logits.empty() ? DType::f32 : args.d_logits.dtype();
  if (!args.d_logits.empty()) {
    check_operand(args.d_logits, {"softmax_cross_entropy d_logits", dtype, args.logits.shape()});
  }
  SL_DISPATCH(stream, dtype, softmax_cross_entropy, stream, args);
}

std::int64_t cross_entropy_chunk_tokens(std::int64_t N, std::int64_t V, Device device) {
  const std::int64_t chunk_bytes = device == Device::cuda ? kDeviceChunkBytes : kChunkBytes;
  const std::int64_t row_bytes = V * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t most =
      std::max<std::int64_t>(1, chunk_bytes / row_bytes / kChunkMultiple) * kChunkMultiple;
  const std::int64_t chunks = std::max<std::int64_t>(1, (N + most - 1) / most);
  const std::int64_t tokens = (N + chunks - 1) / chunks;  // even chunks, without a small last one
  return (tokens + kChunkMultiple - 1) / kChunkMultiple * kChunkMultiple;
}

std::int64_t logits_row(std::int64_t V, Device device) {
  return device == Device::cuda
             ? (V + kDeviceRowMultiple - 1) / kDeviceRowMultiple * kDeviceRowMultiple
             : V;
}

}  // namespace slackline
