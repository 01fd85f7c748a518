#include "tests/tools/infer/small_checkpoint.h"

#include "core/checkpoint/write_checkpoint.h"
#include "core/rng.h"
#include "model/stage.h"

namespace slackline {

ModelConfig small_model(int vocab) {
  return {.layers = 2, .hidden = 12, .heads = 3, .sequence = 10, .vocab = vocab, .ffn = 20};
}

Parameters random_parameters(const ModelConfig& config, std::uint64_t seed) {
  Parameters parameters(config, {.gradients = Gradients::none});
  for (Parameter& parameter : parameters.all()) {
    const PhiloxKey key = philox_key(seed, parameter.spec.name);
    const double mean = parameter.spec.role == ParameterRole::norm_weight ? 1.0 : 0.0;
    const std::span<float> weight = parameter.weight.span<float>();
    for (std::size_t i = 0; i < weight.size(); ++i) {
      weight[i] = static_cast<float>(mean + 0.3 * normal_pair(key, i)[0]);
    }
  }
  return parameters;
}

void write_small_checkpoint(const std::string& directory,
                            const ModelConfig& config,
                            const Parameters& parameters,
                            const std::string& tokenizer) {
  CheckpointContents contents{.step = 3};
  contents.documents.model = model_config_json(config);
  for (const Parameter& parameter : parameters.all()) {
    contents.tensors.push_back(
        {.name = "weights/" + parameter.spec.name, .data = parameter.weight});
  }
  if (!tokenizer.empty()) {
    contents.files.emplace("tokenizer.json", tokenizer);
  }
  write_checkpoint(directory, contents);
}

std::vector<float> training_logits(Parameters& parameters,
                                   const ModelConfig& config,
                                   std::vector<std::int32_t> tokens) {
  const auto N = static_cast<std::int64_t>(tokens.size());
  const Stage::Options options{.micro_batch = {.B = 1, .T = N},
                               .purpose = Stage::Purpose::evaluate};
  Stream stream({.workspace_bytes = Stage::workspace_bytes(config, options, 1)});
  NoTensorSum sum;
  Stage stage(parameters, config, options);
  const Pass pass{.stream = stream,
                  .sum = &sum,
                  .batch = {.tokens = Tensor(tokens.data(), DType::i32, {1, N}), .targets = {}}};
  stage.forward(pass);
  std::vector<float> logits(tokens.size() * static_cast<std::size_t>(config.vocab));
  stage.head().logits(
      stream, stage.final_norm_output(), Tensor(logits.data(), DType::f32, {N, config.vocab}));
  return logits;
}

}  // namespace slackline
