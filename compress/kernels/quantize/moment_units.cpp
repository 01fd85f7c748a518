#include "compress/kernels/quantize/moment_units.h"

#include <cmath>

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"
#include "core/kernels/update/sum_of_squares.h"

namespace slackline {

SL_BACKENDS(void divide_by_units(
    StreamView stream, const Tensor& x, const MomentUnits& units, const Tensor& to))
SL_BACKENDS(void multiply_by_units(
    StreamView stream, const Tensor& y, const MomentUnits& units, const Tensor& out, Update update))

MomentUnits moment_units(StreamView stream, const Tensor& moments) {
  constexpr double kShare = 0x1p-10;
  const double mean = sum_of_squares(stream, moments) / static_cast<double>(moments.num_elements());
  const double floor = kShare * std::sqrt(std::sqrt(mean));
  return {.moments = moments,
          .floor = floor > 0.0 ? static_cast<float>(BFloat16(static_cast<float>(floor))) : 1.0F};
}

void divide_by_units(StreamView stream,
                     const Tensor& x,
                     const MomentUnits& units,
                     const Tensor& to) {
  const Shape& shape = units.moments.shape();
  check_operand(units.moments, {"moments", DType::f32, shape});
  check_operand(x, {"values over moments", DType::f32, shape});
  check_operand(to, {"quotients of moments", DType::f32, shape});
  SL_BACKEND(stream, divide_by_units, stream, x, units, to);
}

void multiply_by_units(StreamView stream,
                       const Tensor& y,
                       const MomentUnits& units,
                       const Tensor& out,
                       Update update) {
  const Shape& shape = units.moments.shape();
  check_operand(units.moments, {"moments", DType::f32, shape});
  check_operand(y, {"values in units of moments", DType::f32, shape});
  check_operand(out, {"products of moments", DType::f32, shape});
  SL_BACKEND(stream, multiply_by_units, stream, y, units, out, update);
}

}  // namespace slackline
