#pragma once

#include <cstdint>

#include "optim/optimizer_config.h"

namespace slackline {

// The learning rate of step `step` (from 1) of a run of `num_steps`, for w = warmup_steps:
//   step <= w:  lr * step / w
//   constant:   lr
//   linear:     straight from lr at step w to min_lr at num_steps
//   cosine:     half a cosine from lr at step w to min_lr at num_steps
//   wsd:        lr until decay_steps before num_steps (a fifth of num_steps where that is absent;
//               until w where that is later), then straight to min_lr at num_steps
// Step 1 of a warm-up has lr / w. Megatron-LM counts from 0: its step 1 has rate 0, and each later
// step the rate of the step before it here.
// A pure function, so that a resumed run goes on where it stood; a run whose num_steps is changed
// on a resume continues on the new curve. Beyond num_steps it stays at min_lr (constant: lr).
// REQUIRES: step >= 1.
[[nodiscard]] double learning_rate(const OptimizerConfig& config,
                                   std::int64_t step,
                                   std::int64_t num_steps);

}  // namespace slackline
