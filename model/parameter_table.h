#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor/shape.h"
#include "model/model_config.h"

namespace slackline {

// What a parameter is, from which follow its initial values and whether it decays.
enum class ParameterRole {
  token_embedding,
  position_embedding,
  head,  // lm_head.weight of an untied model
  matrix,
  bias,
  norm_weight,
  norm_bias,
};

// How a parameter is cut over tensor ranks; model/shard.h has the indices.
enum class TensorCut {
  none,         // every rank has all of it
  rows,         // inputs of a layer; vocabulary of a table
  columns,      // outputs of a layer
  qkv_columns,  // the rank's heads in each of Q, K and V
};

// Where in the model a parameter is used: decides which pipeline stages hold it.
enum class ModelPart { embedding, layer, head };

struct ParameterSpec {
  std::string name;  // Hugging Face's, without the "transformer." prefix
  Shape shape;       // Hugging Face's: matrices are (in, out), tables (rows, hidden)
  ParameterRole role = ParameterRole::matrix;
  double init_std = 0.0;  // of normal initial values; 0: zeros, or ones for norm weights
  TensorCut cut = TensorCut::none;
  ModelPart part = ModelPart::layer;
  int layer = -1;       // of ModelPart::layer
  bool trained = true;  // else it keeps its weights: it has neither a gradient nor optimizer state
};

// Every parameter of the model, in the order of the forward pass. Names are unique.
[[nodiscard]] std::vector<ParameterSpec> parameter_table(const ModelConfig& config);

// Returns the parameters of both ends of the model and of some of its layers alone, in the same
// order. REQUIRES: `layers` ascend.
[[nodiscard]] std::vector<ParameterSpec> parameter_table(const ModelConfig& config,
                                                         const std::vector<int>& layers);

[[nodiscard]] std::int64_t num_parameters(const ModelConfig& config);
[[nodiscard]] std::int64_t num_trained_parameters(const ModelConfig& config);

// Whether the parameter of that name is trained.
[[nodiscard]] bool is_trained(const ModelConfig& config, const std::string& name);

// Whether a name is of a pattern as shells know them: * stands for any characters, dots included, ?
// for one, [abc] for one of some.
[[nodiscard]] bool matches(const std::string& pattern, const std::string& name);

[[nodiscard]] bool is_embedding(ParameterRole role);

[[nodiscard]] bool is_norm(ParameterRole role);

// Decoupled weight decay acts on matrices, and on embedding tables where the user asks for it.
[[nodiscard]] bool decays(ParameterRole role, bool decay_embeddings);

}  // namespace slackline
