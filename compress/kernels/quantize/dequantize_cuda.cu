#include "compress/kernels/quantize/code_widths.h"
#include "compress/kernels/quantize/quantize_scales.h"
#include "core/cuda/launch.h"

// A thread for the codes that begin in a byte. A level has eight bits and a scale as many, or twice
// as many where it is a product: their product is exact, and an update is rounded once.
namespace slackline::cuda {

namespace {

constexpr unsigned kThreads = 256;

template <int bits, Update update>
__global__ void __launch_bounds__(kThreads) unpack_kernel(std::int64_t rows,
                                                          std::int64_t columns,
                                                          ScaleMap map,
                                                          float below_zero,
                                                          std::int64_t row_bytes,
                                                          const BFloat16* scales,
                                                          const std::uint8_t* packed,
                                                          float* out) {
  constexpr bool kDivides = 8 % bits == 0;
  constexpr int kMost = (8 + bits - 1) / bits;  // codes that begin in a byte
  constexpr float kStep = 1.0F / static_cast<float>(1 << (bits - 1));
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= rows * row_bytes) {
    return;
  }
  const std::int64_t row = index / row_bytes;
  const std::int64_t byte = index % row_bytes;
  const std::int64_t first = (8 * byte + bits - 1) / bits;
  const int bit = kDivides ? 0 : static_cast<int>(first * bits - 8 * byte);  // of the first one
  unsigned codes = packed[index];
  if (!kDivides && byte + 1 < row_bytes) {  // the last one may end in the next byte
    codes |= static_cast<unsigned>(packed[index + 1]) << 8;
  }
#pragma unroll
  for (int k = 0; k < kMost; ++k) {
    const std::int64_t column = first + k;
    if (column >= columns || bit + bits * k >= 8) {
      break;
    }
    const unsigned code = codes >> (bit + bits * k) & ((1U << bits) - 1U);
    const float level = fmaf(static_cast<float>(code), kStep, -below_zero);
    const float scale = map.scale(scales, row, column);
    float& to = out[row * columns + column];
    to = updated<update>(to, level, scale);
  }
}

template <int bits>
void start(StreamView stream, const QuantizedMatrix& from, const Tensor& out, Update update) {
  const std::int64_t columns = out.dim(1);
  with_update(update, [&](auto constant) {
    launch(stream,
           {.grid = blocks_for(from.packed.num_elements(), kThreads), .block = kThreads},
           unpack_kernel<bits, decltype(constant)::value>,
           out.dim(0),
           columns,
           ScaleMap(from.format, out.dim(0), columns),
           1.0F - from.format.offset() / static_cast<float>(1 << (bits - 1)),
           from.packed.dim(1),
           from.scales.data<BFloat16>(),
           from.packed.data<std::uint8_t>(),
           out.data<float>());
  });
}

}  // namespace

void dequantize(StreamView stream, const QuantizedMatrix& from, const Tensor& out, Update update) {
  with_code_width(from.format.bits,
                  [&](auto bits) { start<decltype(bits)::value>(stream, from, out, update); });
}

}  // namespace slackline::cuda
