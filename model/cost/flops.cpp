#include "model/cost/flops.h"

#include "model/cost/part_flops.h"
#include "model/parameter_table.h"

namespace slackline {

FlopsPerToken flops_per_token(const ModelConfig& config) {
  const double L = config.layers;
  const PassFlops layer = layer_flops(config);
  const double logits = 2.0 * product_flops(config, WeightProduct::logits) +
                        weight_gradient_flops(config, WeightProduct::logits);

  FlopsPerToken flops;
  flops.causal = L * (layer.forward + layer.backward_input + layer.backward_weight) + logits;
  // The lookup multiplies nothing.
  const double table =
      config.tie_embeddings ? 0.0 : static_cast<double>(config.vocab) * config.hidden;
  const double N = static_cast<double>(num_parameters(config)) - table;
  const double not_trained =
      static_cast<double>(num_parameters(config) - num_trained_parameters(config));
  const double kept = not_trained - (is_trained(config, "wte.weight") ? 0.0 : table);
  // Attention of the whole square: twice the causal half, in three passes.
  flops.full_attention = 6.0 * N - 2.0 * kept + L * (6.0 * attention_flops(config));
  flops.hardware = flops.causal + L * layer.recompute;
  return flops;
}

}  // namespace slackline
