#include "model/embedding.h"

#include <algorithm>

#include "core/kernels/elementwise/dropout.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/embedding/embedding.h"
#include "core/tensor/profile.h"

namespace slackline {

Embedding::Embedding(Parameters& parameters)
    : parameters_(&parameters),
      token_table_(&parameters.at("wte.weight")),
      position_table_(&parameters.at("wpe.weight")),
      touched_(static_cast<std::size_t>(token_table_->shard.shape[0]), 0) {}

void Embedding::forward(const Pass& pass, const Tensor& out) const {
  const ProfileRange range(pass.stream, "embedding");
  TensorSum& sum = *pass.sum;
  const Tensor& positions = position_table_->compute();
  const bool alone = sum.share().size == 1;
  ArenaScope scratch(pass.stream.workspace());
  const Tensor whole = sum.share().allocate_whole(scratch, out);
  embedding_forward(pass.stream,
                    {.tokens = pass.batch.tokens,
                     .token_table = token_table_->compute(),
                     .position_table = alone ? positions : Tensor(),
                     .y = pass.by_sequence(whole),
                     .first_position = pass.first_position,
                     .first_token = first_token(pass)});
  if (!alone) {
    sum.sum(whole).wait();
    add_positions(pass.stream,
                  {.position_table = positions,
                   .x = sum.own_rows(whole),
                   .y = out,
                   .first_row = sum.share().first_row(whole.dim(0)),
                   .T = pass.T()});
  }
  if (pass.dropout > 0.0F) {
    dropout_add(pass.stream, pass.dropout_rows("embd", out, out));
  }
}

void Embedding::backward(const Pass& pass, const Tensor& d_out) {
  const ProfileRange range(pass.stream, "embedding");
  TensorSum& sum = *pass.sum;
  if (pass.dropout > 0.0F) {
    dropout_add(pass.stream, pass.dropout_rows("embd", d_out, d_out));
  }
  ArenaScope scratch(pass.stream.workspace());
  const Tensor whole = sum.share().allocate_whole(scratch, d_out);
  sum.gather(d_out, whole).wait();
  const bool tied = !parameters_->input_gradient().empty();
  const std::int64_t first = first_token(pass);
  embedding_backward(
      pass.stream,
      {.tokens = pass.batch.tokens,
       .dy = pass.by_sequence(whole),
       .d_token_table = tied ? parameters_->input_gradient() : token_table_->gradient,
       .d_position_table = position_table_->gradient,
       .first_token = first});
  if (pass.stream.device() == Device::cuda) {
    return;
  }
  const auto own_rows = static_cast<std::int64_t>(touched_.size());
  for (const std::int32_t token : pass.batch.tokens.span<std::int32_t>()) {
    if (token >= first && token < first + own_rows) {
      touched_[static_cast<std::size_t>(token - first)] = 1;
    }
  }
}

std::size_t Embedding::workspace_bytes(const ModelConfig& config,
                                       const LayerShape& shape,
                                       const Workers& workers) {
  return shape.whole_bytes(config.hidden) +
         embedding_workspace_bytes(shape.num_tokens(), shape.share.num_of(config.vocab), workers);
}

void Embedding::finish_gradient(StreamView stream) {
  if (parameters_->input_gradient().empty() || parameters_->join() == Parameters::Join::by_others) {
    return;
  }
  const ProfileRange range(stream, "embedding");
  if (stream.device() == Device::cuda) {
    accumulate(stream, parameters_->input_gradient(), token_table_->gradient);
    fill_zero(stream, parameters_->input_gradient());
    return;
  }
  const std::span<float> input = parameters_->input_gradient().span<float>();
  const std::span<float> total = token_table_->gradient.span<float>();
  const std::size_t V = touched_.size();
  const auto C = static_cast<std::size_t>(token_table_->shard.shape[1]);
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
