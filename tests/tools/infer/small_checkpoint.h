#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/parameters.h"

namespace slackline {

// A model that runs in no time: 2 layers, odd sizes.
[[nodiscard]] ModelConfig small_model(int vocab);

// Parameters of distinct values, large enough that every part of the model matters: a function of
// the seed.
[[nodiscard]] Parameters random_parameters(const ModelConfig& config, std::uint64_t seed);

// Writes a checkpoint of weights alone. `tokenizer` is the content of tokenizer.json; empty: none.
void write_small_checkpoint(const std::string& directory,
                            const ModelConfig& config,
                            const Parameters& parameters,
                            const std::string& tokenizer = "");

// Returns the logits of every position, (N, vocab), by the training code's forward pass over N
// tokens.
[[nodiscard]] std::vector<float> training_logits(Parameters& parameters,
                                                 const ModelConfig& config,
                                                 std::vector<std::int32_t> tokens);

}  // namespace slackline
