#include "model/cost/part_flops.h"

#include "core/check.h"

namespace slackline {

double product_flops(const ModelConfig& config, WeightProduct product) {
  const double C = config.hidden;
  const double F = config.ffn;
  switch (product) {
    case WeightProduct::qkv:
      return 2.0 * C * (3.0 * C);
    case WeightProduct::attention_projection:
      return 2.0 * C * C;
    case WeightProduct::expansion:
    case WeightProduct::mlp_projection:
      return 2.0 * C * F;
    case WeightProduct::logits:
      return 2.0 * C * config.vocab;
  }
  SL_CHECK(false, "a product that the model does not have");
  return 0.0;
}

double attention_flops(const ModelConfig& config) {
  return 2.0 * config.hidden * config.sequence;
}

double lookup_flops(const ModelConfig& config) {
  return 2.0 * config.hidden;
}

PassFlops layer_flops(const ModelConfig& config) {
  const double products = product_flops(config, WeightProduct::qkv) +
                          product_flops(config, WeightProduct::attention_projection) +
                          product_flops(config, WeightProduct::expansion) +
                          product_flops(config, WeightProduct::mlp_projection);
  const double attention = attention_flops(config);
  const double forward = products + attention;
  return {.forward = forward,
          .backward_input = products + 2.0 * attention,
          .backward_weight = products,
          .recompute = config.recompute == Recompute::block ? forward : 0.0};
}

PassFlops head_flops(const ModelConfig& config) {
  const double logits = product_flops(config, WeightProduct::logits);
  return {
      .forward = lookup_flops(config), .backward_input = 2.0 * logits, .backward_weight = logits};
}

PassFlops embedding_flops(const ModelConfig& config) {
  return {.forward = lookup_flops(config), .backward_weight = lookup_flops(config)};
}

}  // namespace slackline
