#include "model/parameter_table.h"

#include <cmath>

namespace slackline {

namespace {

constexpr double kInitStd = 0.02;  // GPT-2's initializer_range

void add_norm(std::vector<ParameterSpec>& table, const std::string& name, std::int64_t C) {
  table.push_back({name + ".weight", {C}, ParameterRole::norm_weight});
  table.push_back({name + ".bias", {C}, ParameterRole::norm_bias});
}

// `cut` is the matrix's: the bias goes with the columns, and stays whole where rows are cut.
void add_linear(std::vector<ParameterSpec>& table,
                const std::string& name,
                Shape in_out,
                double std,
                TensorCut cut) {
  const TensorCut bias_cut = cut == TensorCut::rows ? TensorCut::none : cut;
  table.push_back({name + ".weight", in_out, ParameterRole::matrix, std, cut});
  table.push_back({name + ".bias", {in_out[1]}, ParameterRole::bias, 0.0, bias_cut});
}

}  // namespace

std::vector<ParameterSpec> parameter_table(const ModelConfig& config) {
  const std::int64_t C = config.hidden;
  const std::int64_t F = config.ffn;
  // Each block adds to the residual stream twice; this keeps its variance from growing with depth.
  const double residual_std = kInitStd / std::sqrt(2.0 * config.layers);

  std::vector<ParameterSpec> table;
  table.push_back(
      {"wte.weight", {config.vocab, C}, ParameterRole::token_embedding, kInitStd, TensorCut::rows});
  table.push_back(
      {"wpe.weight", {config.sequence, C}, ParameterRole::position_embedding, kInitStd});
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = "h." + std::to_string(layer);
    add_norm(table, prefix + ".ln_1", C);
    add_linear(table, prefix + ".attn.c_attn", {C, 3 * C}, kInitStd, TensorCut::qkv_columns);
    add_linear(table, prefix + ".attn.c_proj", {C, C}, residual_std, TensorCut::rows);
    add_norm(table, prefix + ".ln_2", C);
    add_linear(table, prefix + ".mlp.c_fc", {C, F}, kInitStd, TensorCut::columns);
    add_linear(table, prefix + ".mlp.c_proj", {F, C}, residual_std, TensorCut::rows);
  }
  add_norm(table, "ln_f", C);
  if (!config.tie_embeddings) {
    table.push_back(
        {"lm_head.weight", {config.vocab, C}, ParameterRole::head, kInitStd, TensorCut::rows});
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

bool is_embedding(ParameterRole role) {
  return role == ParameterRole::token_embedding || role == ParameterRole::position_embedding;
}

bool decays(ParameterRole role, bool decay_embeddings) {
  return role == ParameterRole::matrix || role == ParameterRole::head ||
         (decay_embeddings && is_embedding(role));
}

}  // namespace slackline
