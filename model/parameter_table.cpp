#include "model/parameter_table.h"

#include <algorithm>
#include <cmath>
#include <fnmatch.h>
#include <numeric>

namespace slackline {

namespace {

constexpr double kInitStd = 0.02;  // GPT-2's initializer_range

// Appends the parameters of one layer, or of the model's ends.
class TableWriter {
 public:
  TableWriter(std::vector<ParameterSpec>& table, ModelPart part, int layer = -1)
      : table_(table), part_(part), layer_(layer) {}

  void add(ParameterSpec spec) {
    spec.part = part_;
    spec.layer = layer_;
    table_.push_back(spec);
  }

  void add_norm(const std::string& name, std::int64_t C) {
    add({.name = name + ".weight", .shape = {C}, .role = ParameterRole::norm_weight});
    add({.name = name + ".bias", .shape = {C}, .role = ParameterRole::norm_bias});
  }

  void add_linear(const std::string& name, Shape in_out, double std, TensorCut cut) {
    add({.name = name + ".weight",
         .shape = in_out,
         .role = ParameterRole::matrix,
         .init_std = std,
         .cut = cut});
    add({.name = name + ".bias",
         .shape = {in_out[1]},
         .role = ParameterRole::bias,
         .cut = cut == TensorCut::rows ? TensorCut::none : cut});
  }

 private:
  std::vector<ParameterSpec>& table_;
  ModelPart part_;
  int layer_;
};

}  // namespace

std::vector<ParameterSpec> parameter_table(const ModelConfig& config) {
  std::vector<int> layers(static_cast<std::size_t>(config.layers));
  std::iota(layers.begin(), layers.end(), 0);
  return parameter_table(config, layers);
}

std::vector<ParameterSpec> parameter_table(const ModelConfig& config,
                                           const std::vector<int>& layers) {
  const std::int64_t C = config.hidden;
  const std::int64_t F = config.ffn;
  // Each block adds to the residual stream twice; this keeps its variance from growing with depth.
  const double residual_std = kInitStd / std::sqrt(2.0 * config.layers);

  std::vector<ParameterSpec> table;
  TableWriter embedding(table, ModelPart::embedding);
  embedding.add({.name = "wte.weight",
                 .shape = {config.vocab, C},
                 .role = ParameterRole::token_embedding,
                 .init_std = kInitStd,
                 .cut = TensorCut::rows});
  embedding.add({.name = "wpe.weight",
                 .shape = {config.sequence, C},
                 .role = ParameterRole::position_embedding,
                 .init_std = kInitStd});
  for (const int i : layers) {
    const std::string prefix = "h." + std::to_string(i);
    TableWriter layer(table, ModelPart::layer, i);
    layer.add_norm(prefix + ".ln_1", C);
    layer.add_linear(prefix + ".attn.c_attn", {C, 3 * C}, kInitStd, TensorCut::qkv_columns);
    layer.add_linear(prefix + ".attn.c_proj", {C, C}, residual_std, TensorCut::rows);
    layer.add_norm(prefix + ".ln_2", C);
    layer.add_linear(prefix + ".mlp.c_fc", {C, F}, kInitStd, TensorCut::columns);
    layer.add_linear(prefix + ".mlp.c_proj", {F, C}, residual_std, TensorCut::rows);
  }
  TableWriter head(table, ModelPart::head);
  head.add_norm("ln_f", C);
  if (!config.tie_embeddings) {
    head.add({.name = "lm_head.weight",
              .shape = {config.vocab, C},
              .role = ParameterRole::head,
              .init_std = kInitStd,
              .cut = TensorCut::rows});
  }
  for (ParameterSpec& spec : table) {
    spec.trained = is_trained(config, spec.name);
  }
  return table;
}

std::int64_t num_parameters(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const ParameterSpec& spec : parameter_table(config)) {
    count += static_cast<std::int64_t>(spec.shape.num_elements());
  }
  return count;
}

std::int64_t num_trained_parameters(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const ParameterSpec& spec : parameter_table(config)) {
    count += spec.trained ? static_cast<std::int64_t>(spec.shape.num_elements()) : 0;
  }
  return count;
}

bool is_trained(const ModelConfig& config, const std::string& name) {
  return config.trainable.empty() ||
         std::ranges::any_of(config.trainable,
                             [&](const std::string& pattern) { return matches(pattern, name); });
}

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool is_embedding(ParameterRole role) {
  return role == ParameterRole::token_embedding || role == ParameterRole::position_embedding;
}

bool is_norm(ParameterRole role) {
  return role == ParameterRole::norm_weight || role == ParameterRole::norm_bias;
}

bool decays(ParameterRole role, bool decay_embeddings) {
  return role == ParameterRole::matrix || role == ParameterRole::head ||
         (decay_embeddings && is_embedding(role));
}

}  // namespace slackline
