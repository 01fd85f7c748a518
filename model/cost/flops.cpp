#include "model/cost/flops.h"

#include "model/parameter_table.h"

namespace slackline {

FlopsPerToken flops_per_token(const ModelConfig& config) {
  const double L = config.layers;
  const double C = config.hidden;
  const double F = config.ffn;
  const double T = config.sequence;
  const double V = config.vocab;
  const double block_weights = 3.0 * C * C + C * C + 2.0 * C * F;
  // One multiply and one add per weight, three times: forward, input and weight gradients.
  const double block_products = 6.0 * block_weights;
  const double block_attention = 6.0 * C * T;  // scores and context, causal half of 12 C T

  FlopsPerToken flops;
  flops.causal = L * (block_products + block_attention) + 6.0 * C * V;
  const double table = config.tie_embeddings ? 0.0 : V * C;  // the lookup multiplies nothing
  const double N = static_cast<double>(num_parameters(config)) - table;
  flops.full_attention = 6.0 * N + 12.0 * L * C * T;
  flops.hardware = flops.causal;
  if (config.recompute == Recompute::block) {
    flops.hardware += L * (block_products + block_attention) / 3.0;
  }
  return flops;
}

}  // namespace slackline
