#include "model/cost/part_flops.h"

#include "model/cost/flops.h"
#include "model/parameter_table.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

// GPT-2 small, GPT-3 175B and odd sizes. All counts are below 2^53, so doubles hold them exactly.
constexpr ModelConfig kModels[] = {
    {.layers = 12, .hidden = 768, .heads = 12, .sequence = 1024, .vocab = 50257, .ffn = 3072},
    {.layers = 96, .hidden = 12288, .heads = 96, .sequence = 2048, .vocab = 50257, .ffn = 49152},
    {.layers = 5, .hidden = 30, .heads = 5, .sequence = 13, .vocab = 37, .ffn = 50}};

}  // namespace

TEST_CASE("a product counts two operations for each of its weights") {
  for (const ModelConfig& model : kModels) {
    double weights = 0.0;
    double products = 0.0;
    for (const ParameterSpec& spec : parameter_table(model)) {
      if (spec.role == ParameterRole::matrix && spec.layer == 0) {
        weights += static_cast<double>(spec.shape.num_elements());
      }
    }
    for (const WeightProduct product : {WeightProduct::qkv,
                                        WeightProduct::attention_projection,
                                        WeightProduct::expansion,
                                        WeightProduct::mlp_projection}) {
      products += product_flops(model, product);
    }
    CHECK(products == 2.0 * weights);
    CHECK(layer_flops(model).backward_weight == products);
    CHECK(product_flops(model, WeightProduct::logits) == 2.0 * model.hidden * model.vocab);
  }
}

TEST_CASE("attention counts the pairs of query and key that are not masked") {
  const ModelConfig model{.layers = 1, .hidden = 6, .heads = 2, .sequence = 5, .vocab = 3};
  // Query t sees t + 1 keys, on average (T + 1) / 2, in the formulas T / 2. Scores and context cost
  // two operations each a channel.
  CHECK(attention_flops(model) == 4.0 * 6 * 5 / 2);
  const PassFlops layer = layer_flops(model);
  const double products = layer.backward_weight;
  CHECK(layer.forward - products == attention_flops(model));
  CHECK(layer.backward_input - products == 2.0 * attention_flops(model));
}

// A layer's weight gradients are the mean over layers, for a run has one cost of a layer.
TEST_CASE("weight gradients count where weights are trained") {
  for (const ModelConfig& model : kModels) {
    ModelConfig part = model;
    part.trainable = {"h.0.*", "h.1.mlp.c_fc.weight"};
    const double expansion = product_flops(model, WeightProduct::expansion);
    const double layer = layer_flops(model).backward_weight;
    CHECK(layer_flops(part).backward_weight == Approx((layer + expansion) / model.layers));
    CHECK(layer_flops(part).backward_input == layer_flops(model).backward_input);
    CHECK(head_flops(part).backward_weight == 0.0);
    const double logits = product_flops(model, WeightProduct::logits);
    CHECK(flops_per_token(model).causal - flops_per_token(part).causal ==
          Approx((model.layers - 1) * layer - expansion + logits));
    part.trainable = {"wte.weight"};
    CHECK(head_flops(part).backward_weight == logits);
    CHECK(layer_flops(part).backward_weight == 0.0);
  }
}

TEST_CASE("recomputation counts as a forward pass, where a config asks for it") {
  ModelConfig model = kModels[0];
  CHECK(layer_flops(model).recompute == 0.0);
  model.recompute = Recompute::block;
  CHECK(layer_flops(model).recompute == layer_flops(model).forward);
}

TEST_CASE("operations of a token are those of the published formulas") {
  for (ModelConfig model : kModels) {
    for (const bool tied : {true, false}) {
      model.tie_embeddings = tied;
      const double L = model.layers;
      const double C = model.hidden;
      const double F = model.ffn;
      const double T = model.sequence;
      const double V = model.vocab;
      model.recompute = Recompute::none;
      const double block = 6.0 * (4.0 * C * C + 2.0 * C * F) + 6.0 * C * T;
      const double N = static_cast<double>(num_parameters(model)) - (tied ? 0.0 : V * C);
      const FlopsPerToken flops = flops_per_token(model);
      CHECK(flops.causal == L * block + 6.0 * C * V);
      CHECK(flops.full_attention == 6.0 * N + 12.0 * L * C * T);
      CHECK(flops.hardware == flops.causal);
      // The head alone is trained: the others' weights have no gradients. A lookup has no products.
      ModelConfig head = model;
      head.trainable = {tied ? "wte.weight" : "lm_head.weight"};
      CHECK(flops_per_token(head).full_attention == 4.0 * N + 2.0 * C * V + 12.0 * L * C * T);
      model.recompute = Recompute::block;
      CHECK(flops_per_token(model).causal == flops.causal);
      CHECK(flops_per_token(model).hardware == flops.causal + L * block / 3.0);
    }
  }
}

}  // namespace slackline::testing
