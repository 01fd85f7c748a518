#include "core/kernels/elementwise/dropout.h"

#include <string>

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS_OF_TYPE(void dropout_add(StreamView stream, const DropoutAdd& args))

void check_dropout_add(const DropoutAdd& args) {
  const Tensor& x = args.x;
  SL_CHECK(x.shape().rank() >= 1, "x " + x.shape().to_string() + " has no samples");
  SL_CHECK(args.key.probability >= 0.0F && args.key.probability < 1.0F,
           "probability " + std::to_string(args.key.probability));
  SL_CHECK(args.first_row >= 0 && args.rows_per_sample > 0,
           "row " + std::to_string(args.first_row) + " of samples of " +
               std::to_string(args.rows_per_sample) + " rows");
  const DType dtype = args.out.dtype();
  check_operand(x, {"dropout_add x", x.dtype() == DType::f32 ? DType::f32 : dtype, x.shape()});
  check_operand(args.out, {"dropout_add out", dtype, x.shape()});
  if (!args.residual.empty()) {
    check_operand(args.residual, {"dropout_add residual", dtype, x.shape()});
  }
}

void dropout_add(StreamView stream, const DropoutAdd& args) {
  check_dropout_add(args);
  SL_DISPATCH(stream, args.out.dtype(), dropout_add, stream, args);
}

}  // namespace slackline
