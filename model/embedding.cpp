#include "model/embedding.h"

#include <algorithm>

#include "core/kernels/dropout.h"
#include "core/kernels/embedding.h"
#include "core/profile.h"

namespace slackline {

Embedding::Embedding(Parameters& parameters)
    : parameters_(&parameters),
      token_table_(&parameters.at("wte.weight")),
      position_table_(&parameters.at("wpe.weight")),
      touched_(static_cast<std::size_t>(token_table_->spec.shape[0]), 0) {}

void Embedding::forward(const Pass& pass, const Tensor& out) const {
  const ProfileRange range(pass.stream, "embedding");
  embedding_forward(pass.stream,
                    {.tokens = pass.batch.tokens,
                     .token_table = token_table_->compute(),
                     .position_table = position_table_->compute(),
                     .y = pass.by_sequence(out)});
  if (pass.dropout > 0.0F) {
    const Tensor y = pass.by_sequence(out);
    dropout_add(pass.stream, {.x = y, .out = y, .key = pass.dropout_key("embd")});
  }
}

void Embedding::backward(const Pass& pass, const Tensor& d_out) {
  const ProfileRange range(pass.stream, "embedding");
  const Tensor dy = pass.by_sequence(d_out);
  if (pass.dropout > 0.0F) {
    dropout_add(pass.stream, {.x = dy, .out = dy, .key = pass.dropout_key("embd")});
  }
  const bool tied = !parameters_->input_gradient().empty();
  embedding_backward(
      pass.stream,
      {.tokens = pass.batch.tokens,
       .dy = dy,
       .d_token_table = tied ? parameters_->input_gradient() : token_table_->gradient,
       .d_position_table = position_table_->gradient});
  for (const std::int32_t token : pass.batch.tokens.span<std::int32_t>()) {
    touched_[static_cast<std::size_t>(token)] = 1;
  }
}

void Embedding::finish_gradient(StreamView stream) {
  if (parameters_->input_gradient().empty()) {
    return;
  }
  const ProfileRange range(stream, "embedding");
  const std::span<float> input = parameters_->input_gradient().span<float>();
  const std::span<float> total = token_table_->gradient.span<float>();
  const std::size_t V = touched_.size();
  const std::size_t C = total.size() / V;
  constexpr std::size_t kRowsPerTask = 256;
  stream.pool().parallel_for((V + kRowsPerTask - 1) / kRowsPerTask, [&](std::size_t task, int) {
    const std::size_t end = std::min(V, (task + 1) * kRowsPerTask);
    for (std::size_t row = task * kRowsPerTask; row < end; ++row) {
      if (touched_[row] == 0) {
        continue;
      }
      for (std::size_t i = row * C; i < (row + 1) * C; ++i) {
        total[i] = input[i] + total[i];
        input[i] = 0.0F;
      }
      touched_[row] = 0;
    }
  });
}

}  // namespace slackline
