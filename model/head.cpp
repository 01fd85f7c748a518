#include "model/head.h"

#include "core/kernels/cross_entropy.h"
#include "core/profile.h"

namespace slackline {

namespace {

double sum_in_order(const Tensor& losses) {
  double sum = 0.0;
  for (const float loss : losses.span<float>()) {
    sum += loss;
  }
  return sum;
}

}  // namespace

Head::Head(Parameters& parameters, const ModelConfig& config)
    : table_(&parameters.at(config.tie_embeddings ? "wte.weight" : "lm_head.weight")) {}

double Head::loss(const Pass& pass, const Tensor& x) const {
  const ProfileRange range(pass.stream, "classifier");
  ArenaScope scratch(pass.stream.workspace());
  const Tensor losses = scratch.allocate(DType::f32, {x.dim(0)});
  cross_entropy(
      pass.stream,
      {.x = x, .table = table_->compute(), .targets = pass.batch.targets, .losses = losses});
  return sum_in_order(losses);
}

double Head::loss_and_gradient(const Pass& pass,
                               const Tensor& x,
                               const Tensor& d_x,
                               float scale) const {
  const ProfileRange range(pass.stream, "classifier");
  ArenaScope scratch(pass.stream.workspace());
  const Tensor losses = scratch.allocate(DType::f32, {x.dim(0)});
  cross_entropy(pass.stream,
                {.x = x,
                 .table = table_->compute(),
                 .targets = pass.batch.targets,
                 .losses = losses,
                 .d_x = d_x,
                 .d_table = table_->gradient,
                 .accumulate_table = pass.accumulate,
                 .gradient_scale = scale});
  return sum_in_order(losses);
}

void Head::logits(StreamView stream, const Tensor& x, const Tensor& logits) const {
  matmul(stream, {.a = x, .b = table_->weight, .c = logits, .transpose_b = Transpose::yes});
}

std::size_t Head::workspace_bytes(const ModelConfig& config,
                                  BatchShape shape,
                                  DType dtype,
                                  int num_threads) {
  const std::int64_t N = shape.num_tokens();
  return Arena::aligned_bytes(DType::f32, {N}) +
         cross_entropy_workspace_bytes(
             {.N = N, .C = config.hidden, .V = config.vocab, .dtype = dtype}, num_threads);
}

}  // namespace slackline
