#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json_reader.h"

namespace slackline {

enum class Recompute { none, block };

// Larger than any model in use, and small enough that every product of two sizes fits 64 bits and
// that a list of all parameters fits any machine.
inline constexpr std::int64_t kMaxModelSize = std::int64_t{1} << 24U;
inline constexpr std::int64_t kMaxLayers = std::int64_t{1} << 16U;
inline constexpr double kMostDropout = 0.99;

// The "model" section of the config: GPT-2 as Radford et al. (2019) published it, at any size.
struct ModelConfig {
  int layers = 0;    // L
  int hidden = 0;    // C
  int heads = 0;     // H; divides hidden
  int sequence = 0;  // T, also the number of learned positions
  int vocab = 0;     // V, unpadded
  int ffn = 0;       // F; 4 * hidden unless given
  float dropout = 0.0F;
  bool tie_embeddings = true;
  Recompute recompute = Recompute::none;
  // Patterns of names (model/parameter_table.h): a parameter that matches one is trained, all
  // others keep their weights. Empty: all are trained.
  std::vector<std::string> trainable{};

  [[nodiscard]] int head_dim() const { return hidden / heads; }

  bool operator==(const ModelConfig&) const = default;
};

// Throws ConfigError for sizes out of range, heads that do not divide, and values that need what
// is not built (kv_heads other than heads, another architecture).
[[nodiscard]] ModelConfig read_model_config(JsonReader section);

// The section as JSON text, for manifests; read_model_config reads it back.
[[nodiscard]] std::string model_config_json(const ModelConfig& config);

// The shape of one micro-batch: B sequences of T tokens, N = B T tokens.
struct BatchShape {
  std::int64_t B = 0;
  std::int64_t T = 0;

  [[nodiscard]] std::int64_t num_tokens() const { return B * T; }

  bool operator==(const BatchShape&) const = default;
};

}  // namespace slackline
