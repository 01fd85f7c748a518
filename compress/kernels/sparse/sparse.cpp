#include "compress/kernels/sparse/sparse.h"

#include "core/kernels/dispatch.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/operand.h"
#include "core/tensor/arena.h"

namespace slackline {

SL_BACKENDS_OF_TYPE(void gather_at(
    StreamView stream, const Tensor& values, const Tensor& indices, const Tensor& kept))
SL_BACKENDS_OF_TYPE(void scatter_at(StreamView stream, const Scatter& args))
SL_BACKENDS_OF_TYPE(void subtract_at(
    StreamView stream, const Tensor& kept, const Tensor& indices, const Tensor& residual))
SL_BACKENDS_OF_TYPE(void tell_non_finite(
    StreamView stream, const Tensor& values, NonFinite found, const Tensor& kept))

namespace {

Shape row_of(const Tensor& indices) {
  return {static_cast<std::int64_t>(indices.num_elements())};
}

void check_sparse(const Tensor& kept, const Tensor& indices, const Tensor& dense) {
  check_operand(indices, {"sparse indices", DType::u32, row_of(indices)});
  check_operand(kept, {"sparse kept", kept.dtype(), row_of(indices)});
  check_operand(dense, {"sparse tensor", DType::f32, dense.shape()});
}

}  // namespace

void gather_at(StreamView stream, const Tensor& values, const Tensor& indices, const Tensor& kept) {
  check_sparse(kept, indices, values);
  SL_DISPATCH(stream, kept.dtype(), gather_at, stream, values, indices, kept);
}

void scatter_at(StreamView stream, const Scatter& args) {
  check_sparse(args.kept, args.indices, args.out);
  SL_DISPATCH(stream, args.kept.dtype(), scatter_at, stream, args);
}

void subtract_at(StreamView stream,
                 const Tensor& kept,
                 const Tensor& indices,
                 const Tensor& residual) {
  check_sparse(kept, indices, residual);
  SL_DISPATCH(stream, kept.dtype(), subtract_at, stream, kept, indices, residual);
}

void tell_non_finite(StreamView stream, const Tensor& values, NonFinite found, const Tensor& kept) {
  check_operand(values, {"sparse tensor", DType::f32, values.shape()});
  if (kept.num_elements() > 0) {
    SL_DISPATCH(stream, kept.dtype(), tell_non_finite, stream, values, found, kept);
  }
}

void keep_only(StreamView stream, const Tensor& indices, const Tensor& tensor) {
  ArenaScope scope(stream.workspace());
  const Tensor kept = scope.allocate(DType::f32, row_of(indices));
  gather_at(stream, tensor, indices, kept);
  fill_zero(stream, tensor);
  scatter_at(stream, {.kept = kept, .indices = indices, .out = tensor});
}

std::size_t keep_only_workspace_bytes(std::size_t k) {
  return Arena::aligned_bytes(DType::f32, {static_cast<std::int64_t>(k)});
}

}  // namespace slackline
