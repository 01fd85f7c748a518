#pragma once

#include <cstdint>
#include <span>

namespace slackline {

struct SamplingOptions {
  double temperature = 1.0;  // 0: always the most likely token
  int top_k = 0;             // sample from the k most likely tokens only; 0: from all
  std::uint64_t seed = 1;
};

// Chooses the token at `position` of a text (0 is the text's first token, the prompt included).
// A function of its arguments alone: the random number is keyed by (seed, position), so a text does
// not depend on what was drawn before. The lowest id of equal logits counts as the most likely.
// Weights are computed in double and summed in id order.
//
// Throws NonFiniteError when a logit is not finite: such weights are the outcome of a training run
// that diverged. REQUIRES: at least one logit, temperature >= 0, top_k >= 0.
[[nodiscard]] std::int32_t sample_token(std::span<const float> logits,
                                        const SamplingOptions& options,
                                        std::uint64_t position);

}  // namespace slackline
