#include "model/head.h"

#include <algorithm>

#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/loss/cross_entropy.h"
#include "core/tensor/profile.h"

namespace slackline {

namespace {

struct ClassifierSize {
  std::int64_t N = 0;
  std::int64_t C = 0;
  std::int64_t own_vocab = 0;
  std::int64_t row = 0;  // of logits
  std::int64_t chunk_tokens = 0;
  DType dtype = DType::f32;

  ClassifierSize(
      std::int64_t N_, const Shape& table, DType dtype_, Device device, const TensorShare& share)
      : N(N_),
        C(table[1]),
        own_vocab(share.num_of(table[0])),
        row(logits_row(own_vocab, device)),
        chunk_tokens(Head::chunk_tokens(N, table[0], device, share)),
        dtype(dtype_) {}
};

// What one chunk after the other works in. Allocated on a measuring arena, it tells how much.
struct Scratch {
  Tensor x, d_x;  // of all tokens
  Tensor losses;
  Tensor logits, d_logits;
  Tensor own_statistics, all_statistics;

  // x and d_x are this rank's rows; without d_x there is no gradient.
  Scratch(ArenaScope& arena,
          const ClassifierSize& size,
          const TensorShare& share,
          const Tensor& own_x,
          const Tensor& own_d_x)
      : x(share.allocate_whole(arena, own_x)),
        losses(arena.allocate(DType::f32, {size.N})),
        logits(arena.allocate(DType::f32, {size.chunk_tokens, size.row})),
        own_statistics(arena.allocate(DType::f32, {size.chunk_tokens, kSoftmaxStatistics})),
        all_statistics(
            arena.allocate(DType::f32, {share.size, size.chunk_tokens, kSoftmaxStatistics})) {
    if (own_d_x.shape().rank() > 0) {
      d_x = share.allocate_whole(arena, own_d_x);
      // f32 gradients take the place of their logits.
      d_logits = size.dtype == DType::f32 ? logits : arena.allocate(size.dtype, logits.shape());
    }
  }

  [[nodiscard]] bool has_gradient() const { return d_logits.shape().rank() > 0; }
};

// The tensors of some tokens.
struct Chunk {
  Tensor x{}, d_x{}, logits{}, d_logits{};
  Tensor losses{}, own_statistics{}, all_statistics{};
  std::int64_t row = 0;  // of logits and d_logits

  [[nodiscard]] MatmulArgs logits_product(const Tensor& table) const {
    return {.a = x, .b = table, .c = logits, .transpose_b = Transpose::yes, .row_of_c = row};
  }

  [[nodiscard]] MatmulArgs d_x_product(const Tensor& table) const {
    return {.a = d_logits, .b = table, .c = d_x, .row_of_a = row};
  }

  [[nodiscard]] MatmulArgs d_table_product(const Tensor& d_table, Accumulate accumulate) const {
    return {.a = d_logits,
            .b = x,
            .c = d_table,
            .transpose_a = Transpose::yes,
            .accumulate = accumulate,
            .row_of_a = row};
  }
};

// The first `count` rows of logits, without what is between them.
Tensor first_rows(const Tensor& logits, std::int64_t count, const ClassifierSize& size) {
  return {logits.raw(), logits.dtype(), {count, size.own_vocab}, logits.device()};
}

Chunk chunk_of(const Scratch& all,
               const ClassifierSize& size,
               std::int64_t begin,
               std::int64_t end) {
  const std::int64_t count = end - begin;
  const Tensor& statistics = all.all_statistics;
  Chunk chunk{.x = all.x.rows(begin, end),
              .logits = first_rows(all.logits, count, size),
              .losses = all.losses.rows(begin, end),
              .own_statistics = all.own_statistics.rows(0, count),
              .all_statistics = Tensor(statistics.raw(),
                                       DType::f32,
                                       {statistics.dim(0), count, kSoftmaxStatistics},
                                       statistics.device()),
              .row = size.row};
  if (all.has_gradient()) {
    chunk.d_x = all.d_x.rows(begin, end);
    chunk.d_logits = first_rows(all.d_logits, count, size);
  }
  return chunk;
}

// What the products of a chunk of `count` tokens take.
std::size_t products_workspace_bytes(const ClassifierSize& size,
                                     DType d_x,
                                     std::int64_t count,
                                     const Workers& workers) {
  const Tensor table(nullptr, size.dtype, {size.own_vocab, size.C});
  const Tensor d_table(nullptr, DType::f32, {size.own_vocab, size.C});
  const Tensor x(nullptr, size.dtype, {count, size.C});
  const Chunk chunk{.x = x,
                    .d_x = Tensor(nullptr, d_x, {count, size.C}),
                    .logits = Tensor(nullptr, DType::f32, {count, size.own_vocab}),
                    .d_logits = Tensor(nullptr, size.dtype, {count, size.own_vocab}),
                    .row = size.row};
  return std::max(
      {matmul_workspace_bytes(chunk.logits_product(table), workers),
       matmul_workspace_bytes(chunk.d_x_product(table), workers),
       matmul_workspace_bytes(chunk.d_table_product(d_table, Accumulate::yes), workers)});
}

// Logits to losses and gradients of logits.
struct Softmax {
  StreamView stream;
  TensorSum* sum;
  std::int64_t first_token;
  float scale;

  void run(const Chunk& chunk, const Tensor& targets) const {
    if (sum->share().size == 1) {
      softmax_cross_entropy(stream,
                            {.logits = chunk.logits,
                             .targets = targets,
                             .losses = chunk.losses,
                             .d_logits = chunk.d_logits,
                             .gradient_scale = scale,
                             .row = chunk.row});
      return;
    }
    softmax_statistics(stream,
                       {.logits = chunk.logits,
                        .targets = targets,
                        .statistics = chunk.own_statistics,
                        .first_token = first_token,
                        .row = chunk.row});
    sum->collect(chunk.own_statistics, chunk.all_statistics).wait();
    softmax_loss(stream,
                 {.exponentials = chunk.logits,
                  .targets = targets,
                  .statistics = chunk.all_statistics,
                  .rank = sum->share().rank,
                  .first_token = first_token,
                  .losses = chunk.losses,
                  .d_logits = chunk.d_logits,
                  .gradient_scale = scale,
                  .row = chunk.row});
  }
};

}  // namespace

Head::Head(Parameters& parameters, const ModelConfig& config)
    : table_(&parameters.at(config.tie_embeddings ? "wte.weight" : "lm_head.weight")) {}

void Head::add_loss(const Pass& pass, const Tensor& x, const HeadGradient& gradient) const {
  const ProfileRange range(pass.stream, "classifier");
  TensorSum& sum = *pass.sum;
  const Shape& logical = table_->spec.shape;
  const ClassifierSize size(
      pass.B() * pass.T(), logical, x.dtype(), pass.stream.device(), sum.share());
  ArenaScope arena(pass.stream.workspace());
  const Scratch scratch(arena, size, sum.share(), x, gradient.d_x);
  const Softmax softmax{.stream = pass.stream,
                        .sum = &sum,
                        .first_token = sum.share().first_of(logical[0]),
                        .scale = gradient.scale};
  sum.gather(x, scratch.x).wait();
  Accumulate accumulate = pass.accumulate;
  Transfer d_x_sum;  // runs beside the last product
  for (std::int64_t begin = 0; begin < size.N; begin += size.chunk_tokens) {
    const std::int64_t end = std::min(size.N, begin + size.chunk_tokens);
    const Chunk chunk = chunk_of(scratch, size, begin, end);
    matmul(pass.stream, chunk.logits_product(table_->compute()));
    softmax.run(chunk, pass.batch.targets.rows(begin, end));
    if (scratch.has_gradient()) {
      matmul(pass.stream, chunk.d_x_product(table_->compute()));
      if (end == size.N) {
        d_x_sum = sum.sum(scratch.d_x);
      }
      if (table_->spec.trained) {
        matmul(pass.stream, chunk.d_table_product(table_->gradient, accumulate));
        accumulate = Accumulate::yes;
      }
    }
  }
  d_x_sum.wait();
  if (scratch.has_gradient() && sum.share().sequence_parallel) {
    cast(pass.stream, sum.own_rows(scratch.d_x), gradient.d_x);
  }
  pass.losses->add(pass.stream, scratch.losses);
}

void Head::logits(StreamView stream, const Tensor& x, const Tensor& logits) const {
  matmul(stream, {.a = x, .b = table_->weight, .c = logits, .transpose_b = Transpose::yes});
}

std::int64_t Head::chunk_tokens(std::int64_t N,
                                std::int64_t vocab,
                                Device device,
                                const TensorShare& share) {
  return cross_entropy_chunk_tokens(N, (vocab + share.size - 1) / share.size, device);
}

std::size_t Head::workspace_bytes(const ModelConfig& config,
                                  const LayerShape& shape,
                                  const Workers& workers) {
  const std::int64_t N = shape.num_tokens();
  if (N == 0) {
    return 0;
  }
  const ClassifierSize size(
      N, {config.vocab, config.hidden}, shape.dtype, workers.device, shape.share);
  const Tensor rows(nullptr, shape.dtype, {shape.num_rows(), config.hidden});
  const Tensor d_rows(nullptr, shape.partial(), rows.shape());
  Arena measured = Arena::measuring();
  ArenaScope arena(measured);
  const Scratch scratch(arena, size, shape.share, rows, d_rows);
  const std::int64_t first = std::min(N, size.chunk_tokens);
  const std::int64_t last = N - (N - 1) / size.chunk_tokens * size.chunk_tokens;
  return measured.high_water() +
         std::max(products_workspace_bytes(size, d_rows.dtype(), first, workers),
                  products_workspace_bytes(size, d_rows.dtype(), last, workers));
}

}  // namespace slackline
