#pragma once

#include <cstdint>
#include <string>

#include "core/kernels/elementwise/dropout.h"
#include "core/kernels/matmul/matmul.h"
#include "core/rng.h"
#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"
#include "model/boundary_filter.h"
#include "model/loss_sum.h"
#include "model/parameter_table.h"
#include "model/tensor_sum.h"

namespace slackline {

class KeyValueCache;

// What one forward and backward pass works on. Views; the owner keeps them until the backward pass
// has ended.
struct MicroBatch {
  Tensor tokens{};                 // (B, T) i32
  Tensor targets{};                // (B * T) i32: the token after each
  std::uint64_t first_sample = 0;  // global index of sequence 0; dropout is keyed by it
  std::uint64_t step = 1;          // optimizer step, from 1
};

// Told when a pass reads a part's parameters and when it makes their gradients: what moves
// parameters and gradients between ranks implements it. Matrices and tables are used from
// before_use() to after_use(), and with them biases; norms, which are read ahead of their layer,
// are told of on their own.
class ParameterUse {
 public:
  ParameterUse() = default;
  virtual ~ParameterUse() = default;
  ParameterUse(const ParameterUse&) = delete;
  ParameterUse& operator=(const ParameterUse&) = delete;

  virtual void before_norm(StreamView stream, ModelPart part, int layer) = 0;
  virtual void before_use(StreamView stream, ModelPart part, int layer) = 0;
  virtual void after_use(StreamView stream, ModelPart part, int layer) = 0;
  // Around what makes a part's gradients in one pass; `last`: of the step's last micro-batch.
  virtual void before_gradients(StreamView stream, ModelPart part, int layer) = 0;
  virtual void gradients_made(StreamView stream, ModelPart part, int layer, bool last) = 0;
};

// One pass of one micro-batch through the model: where it runs and what varies from pass to pass.
// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): a pass without a stream does not compile
struct Pass {
  StreamView stream;
  TensorSum* sum;  // the tensor axis, never null: a NoTensorSum for one rank; not owned
  MicroBatch batch{};
  float dropout = 0.0F;    // 0 in evaluation
  std::uint64_t seed = 0;  // of the dropout masks
  // Whether weight gradients of matrices are written (first micro-batch of a step) or added to.
  Accumulate accumulate = Accumulate::no;

  bool is_last = false;              // micro-batch of the step
  LossSum* losses = nullptr;         // where heads add theirs; not owned
  ParameterUse* use = nullptr;       // nobody, or who has to be told
  BoundaryFilter* filter = nullptr;  // nobody, or who changes activations; in evaluation, in f32

  // In generation: keeps the keys and values of the tokens read, and supplies those of the tokens
  // before. Null elsewhere; not owned. REQUIRES: one sequence, one tensor rank, f32.
  KeyValueCache* cache = nullptr;
  std::int64_t first_position = 0;  // of the first token; 0 unless there is a cache

  void before_norm(ModelPart part, int layer = -1) const {
    if (use != nullptr) {
      use->before_norm(stream, part, layer);
    }
  }

  void before_use(ModelPart part, int layer = -1) const {
    if (use != nullptr) {
      use->before_use(stream, part, layer);
    }
  }

  void after_use(ModelPart part, int layer = -1) const {
    if (use != nullptr) {
      use->after_use(stream, part, layer);
    }
  }

  void before_gradients(ModelPart part, int layer = -1) const {
    if (use != nullptr) {
      use->before_gradients(stream, part, layer);
    }
  }

  void gradients_made(ModelPart part, int layer = -1) const {
    if (use != nullptr) {
      use->gradients_made(stream, part, layer, is_last);
    }
  }

  void after_layer(int layer, const Tensor& rows) const {
    if (filter != nullptr) {
      filter->after_layer(stream, layer, rows);
    }
  }

  [[nodiscard]] std::int64_t num_tokens() const { return B() * T(); }

  [[nodiscard]] std::int64_t B() const { return batch.tokens.dim(0); }

  [[nodiscard]] std::int64_t T() const { return batch.tokens.dim(1); }

  // A (B * T, C) tensor as (B, T, C).
  [[nodiscard]] Tensor by_sequence(const Tensor& tensor) const {
    return tensor.reshaped({B(), T(), tensor.dim(-1)});
  }

  // The dropout masks of one site of the model ("h.3.attn").
  [[nodiscard]] DropoutKey dropout_key(const std::string& site) const {
    return {.probability = dropout,
            .site = philox_key(seed, "dropout/" + site),
            .step = batch.step,
            .first_sample = batch.first_sample};
  }

  // out = residual + dropout(x) on this rank's rows of the residual stream, for dropout_add. The
  // masks are those of the whole stream, however it is cut.
  [[nodiscard]] DropoutAdd dropout_rows(const std::string& site,
                                        const Tensor& x,
                                        const Tensor& out,
                                        const Tensor& residual = {}) const {
    return {.x = x,
            .residual = residual,
            .out = out,
            .key = dropout_key(site),
            .first_row = sum->share().first_row(num_tokens()),
            .rows_per_sample = T()};
  }
};

}  // namespace slackline
