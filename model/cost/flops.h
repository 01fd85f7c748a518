#pragma once

#include "model/model_config.h"

namespace slackline {

// Floating-point operations of one trained token, forward and backward, by three formulas that are
// in use. They differ up to 1.85 x on the same run, so every printed figure names its formula.
struct FlopsPerToken {
  double causal = 0.0;  // Megatron-LM's: products, half of the attention square. Our headline
  double full_attention =
      0.0;                // 6 N + 12 L C T (PaLM, appendix B); N without an untied input table
  double hardware = 0.0;  // causal, plus the forward pass again where blocks are recomputed
};

[[nodiscard]] FlopsPerToken flops_per_token(const ModelConfig& config);

}  // namespace slackline
