#include "tests/tools/infer/small_checkpoint.h"

#include "core/checkpoint/write_checkpoint.h"
#include "core/rng.h"

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

}  // namespace slackline
