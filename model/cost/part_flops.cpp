#include "model/cost/part_flops.h"

#include <array>
#include <cstddef>
#include <string>

#include "core/check.h"
#include "model/parameter_table.h"

namespace slackline {

namespace {

// Whether a name is of a product's weight, whichever layer's.
bool is_weight_of(const ModelConfig& config, WeightProduct product, const std::string& name) {
  constexpr std::array<const char*, 4> kOfLayers = {
      "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"};
  if (product == WeightProduct::logits) {
    return name == (config.tie_embeddings ? "wte.weight" : "lm_head.weight");
  }
  return name.ends_with(std::string(kOfLayers[static_cast<std::size_t>(product)]) + ".weight");
}

// The share of a product's weights that is trained.
double trained_share(const ModelConfig& config, WeightProduct product) {
  double trained = 0.0;
  double all = 0.0;
  for (const ParameterSpec& spec : parameter_table(config)) {
    if (is_weight_of(config, product, spec.name)) {
      trained += spec.trained ? 1.0 : 0.0;
      all += 1.0;
    }
  }
  return trained / all;
}

}  // namespace

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

double weight_gradient_flops(const ModelConfig& config, WeightProduct product) {
  return config.trainable.empty() ? product_flops(config, product)
                                  : trained_share(config, product) * product_flops(config, product);
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
  const double weights = weight_gradient_flops(config, WeightProduct::qkv) +
                         weight_gradient_flops(config, WeightProduct::attention_projection) +
                         weight_gradient_flops(config, WeightProduct::expansion) +
                         weight_gradient_flops(config, WeightProduct::mlp_projection);
  const double attention = attention_flops(config);
  const double forward = products + attention;
  return {.forward = forward,
          .backward_input = products + 2.0 * attention,
          .backward_weight = weights,
          .recompute = config.recompute == Recompute::block ? forward : 0.0};
}

PassFlops head_flops(const ModelConfig& config) {
  const double logits = product_flops(config, WeightProduct::logits);
  return {.forward = lookup_flops(config),
          .backward_input = 2.0 * logits,
          .backward_weight = weight_gradient_flops(config, WeightProduct::logits)};
}

PassFlops embedding_flops(const ModelConfig& config) {
  return {.forward = lookup_flops(config), .backward_weight = lookup_flops(config)};
}

}  // namespace slackline
