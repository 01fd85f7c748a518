#include "core/kernels/embedding/embedding.h"

#include <string>

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS_OF_TYPE(void embedding_forward(StreamView stream, const EmbeddingForward& args))
SL_BACKENDS_OF_TYPE(void add_positions(StreamView stream, const PositionAdd& args))
SL_BACKENDS_OF_TYPE(void embedding_backward(StreamView stream, const EmbeddingBackward& args))

namespace cuda {
[[gnu::weak]] std::size_t embedding_workspace_bytes(std::int64_t num_tokens, std::int64_t num_rows);
}

namespace {

void check_positions(const Tensor& table, std::int64_t first, std::int64_t count) {
  SL_CHECK(first >= 0 && first + count <= table.dim(0),
           "positions from " + std::to_string(first) + ", " + std::to_string(count) +
               " of them, in a table of " + std::to_string(table.dim(0)));
}

}  // namespace

void embedding_forward(StreamView stream, const EmbeddingForward& args) {
  const Tensor& tokens = args.tokens;
  SL_CHECK_EQ(tokens.shape().rank(), 2);
  SL_CHECK_EQ(args.y.shape().rank(), 3);
  const std::int64_t C = args.y.dim(2);
  const DType dtype = args.y.dtype();
  check_operand(tokens, {"embedding_forward tokens", DType::i32, tokens.shape()});
  check_operand(args.token_table,
                {"embedding_forward token_table", dtype, {args.token_table.dim(0), C}});
  check_operand(args.y, {"embedding_forward y", dtype, {tokens.dim(0), tokens.dim(1), C}});
  if (!args.position_table.empty()) {
    check_operand(args.position_table,
                  {"embedding_forward position_table", dtype, {args.position_table.dim(0), C}});
    check_positions(args.position_table, args.first_position, tokens.dim(1));
  }
  SL_DISPATCH(stream, dtype, embedding_forward, stream, args);
}

void add_positions(StreamView stream, const PositionAdd& args) {
  SL_CHECK_EQ(args.y.shape().rank(), 2);
  const DType dtype = args.y.dtype();
  check_operand(
      args.position_table,
      {"add_positions position_table", dtype, {args.position_table.dim(0), args.y.dim(1)}});
  check_operand(args.x, {"add_positions x", dtype, args.y.shape()});
  check_operand(args.y, {"add_positions y", dtype, args.y.shape()});
  check_positions(args.position_table, 0, args.T);
  SL_DISPATCH(stream, dtype, add_positions, stream, args);
}

void embedding_backward(StreamView stream, const EmbeddingBackward& args) {
  const Tensor& tokens = args.tokens;
  SL_CHECK_EQ(tokens.shape().rank(), 2);
  SL_CHECK_EQ(args.dy.shape().rank(), 3);
  const std::int64_t C = args.dy.dim(2);
  check_operand(tokens, {"embedding_backward tokens", DType::i32, tokens.shape()});
  check_operand(args.dy,
                {"embedding_backward dy", args.dy.dtype(), {tokens.dim(0), tokens.dim(1), C}});
  if (!args.d_token_table.empty()) {
    check_operand(args.d_token_table,
                  {"embedding_backward d_token_table", DType::f32, {args.d_token_table.dim(0), C}});
  }
  if (!args.d_position_table.empty()) {
    check_operand(
        args.d_position_table,
        {"embedding_backward d_position_table", DType::f32, {args.d_position_table.dim(0), C}});
    SL_CHECK(tokens.dim(1) <= args.d_position_table.dim(0),
             std::to_string(tokens.dim(1)) + " positions in a table of " +
                 std::to_string(args.d_position_table.dim(0)));
  }
  SL_DISPATCH(stream, args.dy.dtype(), embedding_backward, stream, args);
}

std::size_t embedding_workspace_bytes(std::int64_t num_tokens,
                                      std::int64_t num_rows,
                                      const Workers& workers) {
  return workers.device == Device::cuda ? cuda::embedding_workspace_bytes(num_tokens, num_rows) : 0;
}

}  // namespace slackline
