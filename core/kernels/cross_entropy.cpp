#include "core/kernels/cross_entropy.h"

#include <algorithm>

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

namespace cpu {

template <typename T>
void softmax_loss(StreamView stream,
                  const Tensor& logits,
                  const Tensor& targets,
                  const Tensor& losses,
                  const Tensor& d_logits,
                  float gradient_scale);

}  // namespace cpu

namespace {

// Logits of a chunk, in f32. Each chunk reads and writes d_table once and reads the table twice,
// so chunks are as large as memory may reasonably hold: 320 tokens of GPT-2's vocabulary, where
// that traffic hides behind the products.
constexpr std::int64_t kChunkBytes = std::int64_t{64} << 20U;
constexpr std::int64_t kChunkMultiple = 8;

// Tensors of one chunk's size, without memory: what workspace sizes are computed from.
struct Chunk {
  Tensor x, table, logits, d_logits, d_x, d_table;

  Chunk(const CrossEntropySize& size, std::int64_t tokens)
      : x(nullptr, size.dtype, {tokens, size.C}),
        table(nullptr, size.dtype, {size.V, size.C}),
        logits(nullptr, DType::f32, {tokens, size.V}),
        d_logits(nullptr, size.dtype, {tokens, size.V}),
        d_x(x),
        d_table(nullptr, DType::f32, {size.V, size.C}) {}
};

MatmulArgs logits_product(const Chunk& chunk) {
  return {.a = chunk.x, .b = chunk.table, .c = chunk.logits, .transpose_b = Transpose::yes};
}

MatmulArgs d_x_product(const Chunk& chunk) {
  return {.a = chunk.d_logits, .b = chunk.table, .c = chunk.d_x};
}

MatmulArgs d_table_product(const Chunk& chunk, Accumulate accumulate) {
  return {.a = chunk.d_logits,
          .b = chunk.x,
          .c = chunk.d_table,
          .transpose_a = Transpose::yes,
          .accumulate = accumulate};
}

std::size_t products_workspace_bytes(const Chunk& chunk, int num_threads) {
  return std::max({matmul_workspace_bytes(logits_product(chunk), num_threads),
                   matmul_workspace_bytes(d_x_product(chunk), num_threads),
                   matmul_workspace_bytes(d_table_product(chunk, Accumulate::yes), num_threads)});
}

CrossEntropySize check_arguments(const CrossEntropyArgs& args) {
  SL_CHECK(args.x.shape().rank() == 2 && args.table.shape().rank() == 2,
           "cross_entropy takes x (N, C) and table (V, C), not " + args.x.shape().to_string() +
               " and " + args.table.shape().to_string());
  const CrossEntropySize size{
      .N = args.x.dim(0), .C = args.x.dim(1), .V = args.table.dim(0), .dtype = args.x.dtype()};
  check_operand(args.table, {"cross_entropy table", size.dtype, Shape{size.V, size.C}});
  check_operand(args.targets, {"cross_entropy targets", DType::i32, Shape{size.N}});
  check_operand(args.losses, {"cross_entropy losses", DType::f32, Shape{size.N}});
  SL_CHECK(args.d_x.empty() == args.d_table.empty(), "cross_entropy makes both gradients or none");
  if (!args.d_x.empty()) {
    check_operand(args.d_x, {"cross_entropy d_x", size.dtype, Shape{size.N, size.C}});
    check_operand(args.d_table, {"cross_entropy d_table", DType::f32, Shape{size.V, size.C}});
  }
  return size;
}

}  // namespace

void cross_entropy(StreamView stream, const CrossEntropyArgs& args) {
  const CrossEntropySize size = check_arguments(args);
  const std::int64_t chunk_tokens = cross_entropy_chunk_tokens(size.N, size.V);
  const bool has_gradient = !args.d_x.empty();
  Accumulate accumulate = args.accumulate_table;

  ArenaScope scratch(stream.workspace());
  const Shape logits_shape{chunk_tokens, size.V};
  const Tensor logits = scratch.allocate(DType::f32, logits_shape);
  // f32 gradients take the place of their logits.
  const Tensor d_logits = !has_gradient              ? Tensor()
                          : size.dtype == DType::f32 ? logits
                                                     : scratch.allocate(size.dtype, logits_shape);
  for (std::int64_t begin = 0; begin < size.N; begin += chunk_tokens) {
    const std::int64_t end = std::min(size.N, begin + chunk_tokens);
    Chunk chunk(size, end - begin);
    chunk.x = args.x.rows(begin, end);
    chunk.table = args.table;
    chunk.logits = logits.rows(0, end - begin);
    matmul(stream, logits_product(chunk));
    chunk.d_logits = has_gradient ? d_logits.rows(0, end - begin) : Tensor();
    SL_DISPATCH(stream,
                size.dtype,
                softmax_loss,
                stream,
                chunk.logits,
                args.targets.rows(begin, end),
                args.losses.rows(begin, end),
                chunk.d_logits,
                args.gradient_scale);
    if (has_gradient) {
      chunk.d_x = args.d_x.rows(begin, end);
      chunk.d_table = args.d_table;
      matmul(stream, d_x_product(chunk));
      matmul(stream, d_table_product(chunk, accumulate));
      accumulate = Accumulate::yes;
    }
  }
}

std::int64_t cross_entropy_chunk_tokens(std::int64_t N, std::int64_t V) {
  const std::int64_t row_bytes = V * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t most =
      std::max<std::int64_t>(1, kChunkBytes / row_bytes / kChunkMultiple) * kChunkMultiple;
  const std::int64_t chunks = std::max<std::int64_t>(1, (N + most - 1) / most);
  const std::int64_t tokens = (N + chunks - 1) / chunks;  // even chunks, without a small last one
  return (tokens + kChunkMultiple - 1) / kChunkMultiple * kChunkMultiple;
}

std::size_t cross_entropy_workspace_bytes(const CrossEntropySize& size, int num_threads) {
  if (size.N == 0) {
    return 0;
  }
  const std::int64_t chunk_tokens = cross_entropy_chunk_tokens(size.N, size.V);
  const Shape logits_shape{chunk_tokens, size.V};
  std::size_t bytes = Arena::aligned_bytes(DType::f32, logits_shape);
  if (size.dtype != DType::f32) {
    bytes += Arena::aligned_bytes(size.dtype, logits_shape);
  }
  const std::int64_t first = std::min(size.N, chunk_tokens);
  const std::int64_t last = size.N - (size.N - 1) / chunk_tokens * chunk_tokens;
  return bytes + std::max(products_workspace_bytes(Chunk(size, first), num_threads),
                          products_workspace_bytes(Chunk(size, last), num_threads));
}

}  // namespace slackline
