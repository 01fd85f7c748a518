#include "parallel/predict/assumed_costs.h"

#include "tests/support/catch.h"

namespace slackline {

// Plans depend on these numbers to the last bit, so the formulas are written out here.
TEST_CASE("assumed costs are the operations of each part over a speed") {
  for (const Recompute recompute : {Recompute::none, Recompute::block}) {
    for (const ModelConfig& model :
         {ModelConfig{.layers = 12, .hidden = 768, .sequence = 1024, .vocab = 50257, .ffn = 3072},
          ModelConfig{.layers = 5, .hidden = 30, .sequence = 13, .vocab = 37, .ffn = 50},
          ModelConfig{.layers = 96, .hidden = 12288, .sequence = 2048, .vocab = 1, .ffn = 49152}}) {
      ModelConfig config = model;
      config.recompute = recompute;
      const double C = config.hidden;
      const double products = 2.0 * (4.0 * C * C + 2.0 * C * config.ffn);
      const double attention = 2.0 * C * config.sequence;
      const double again = recompute == Recompute::block ? products + attention : 0.0;
      const double input = products + 2.0 * attention + again;
      const AssumedSpeeds speeds{.flops_per_second = 3e11, .bytes_per_second = 7e9};
      const std::vector<OpCost> expected{
          {.kind = CostKind::embedding_forward, .seconds = {2.0 * C / 3e11}},
          {.kind = CostKind::embedding_backward, .seconds = {2.0 * C / 3e11}},
          {.kind = CostKind::layer_forward, .seconds = {(products + attention) / 3e11}},
          {.kind = CostKind::layer_backward, .seconds = {(input + products) / 3e11}},
          {.kind = CostKind::layer_backward_input, .seconds = {input / 3e11}},
          {.kind = CostKind::layer_backward_weight, .seconds = {products / 3e11}},
          {.kind = CostKind::head_forward, .seconds = {2.0 * C / 3e11}},
          {.kind = CostKind::head_backward, .seconds = {6.0 * C * config.vocab / 3e11}},
          {.kind = CostKind::element_update, .seconds = {28.0 / 7e9}}};
      CHECK(assumed_costs(config, speeds).ops == expected);
    }
  }
}

}  // namespace slackline
