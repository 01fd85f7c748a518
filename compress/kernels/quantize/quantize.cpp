#include "compress/kernels/quantize/quantize.h"

#include "compress/kernels/quantize/code_widths.h"
#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS(void quantize(StreamView stream, const Quantize& args))
SL_BACKENDS(void dequantize(
    StreamView stream, const QuantizedMatrix& from, const Tensor& out, Update update))
SL_BACKENDS(std::size_t quantize_workspace_bytes(ScaleOf shared,
                                                 std::int64_t rows,
                                                 std::int64_t columns))

namespace {

constexpr std::int64_t kBitsOfByte = 8;

std::int64_t divided_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// `matrix` is what is quantized, or what codes are written to.
void check(const QuantizedMatrix& quantized, const Tensor& matrix) {
  const auto& [format, scales, packed] = quantized;
  SL_CHECK(is_code_width(format.bits), std::to_string(format.bits) + " bits");
  SL_CHECK(format.shared != ScaleOf::group || format.group > 0,
           "groups of " + std::to_string(format.group));
  SL_CHECK(matrix.shape().rank() == 2 && matrix.dim(1) > 0, matrix.shape().to_string());
  check_operand(matrix, {"quantized matrix", DType::f32, matrix.shape()});
  const std::int64_t rows = matrix.dim(0);
  const std::int64_t columns = matrix.dim(1);
  check_operand(scales, {"quantized scales", DType::bf16, {format.num_scales(rows, columns)}});
  check_operand(packed, {"quantized numbers", DType::u8, {rows, format.row_bytes(columns)}});
}

}  // namespace

std::int64_t QuantizedFormat::num_scales(std::int64_t rows, std::int64_t columns) const {
  switch (shared) {
    case ScaleOf::channel:
      return columns;
    case ScaleOf::token:
      return rows;
    case ScaleOf::group:
      return rows * divided_up(columns, group);
    case ScaleOf::both:
      return rows + columns;
    case ScaleOf::tensor:
      break;
  }
  return 1;
}

std::int64_t QuantizedFormat::row_bytes(std::int64_t columns) const {
  return divided_up(columns * bits, kBitsOfByte);
}

void quantize(StreamView stream, const Quantize& args) {
  check(args.to, args.x);
  if (!args.sum.empty()) {
    check_operand(args.sum, {"quantize sum", DType::f32, args.x.shape()});
  }
  SL_BACKEND(stream, quantize, stream, args);
}

void dequantize(StreamView stream, const QuantizedMatrix& from, const Tensor& out, Update update) {
  check(from, out);
  SL_BACKEND(stream, dequantize, stream, from, out, update);
}

std::size_t quantize_workspace_bytes(ScaleOf shared,
                                     std::int64_t rows,
                                     std::int64_t columns,
                                     const Workers& workers) {
  return workers.device == Device::cuda ? cuda::quantize_workspace_bytes(shared, rows, columns)
                                        : cpu::quantize_workspace_bytes(shared, rows, columns);
}

}  // namespace slackline
