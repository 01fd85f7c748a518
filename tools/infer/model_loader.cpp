#include "tools/infer/model_loader.h"

#include <set>

#include <fmt/format.h>

#include "core/checkpoint/checkpoint_directory.h"
#include "core/error.h"
#include "core/file_errors.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/kernels/attention/attention.h"
#include "core/shown_text.h"
#include "data/formats/tokenizer_file.h"
#include "parallel/channel/codec_filter.h"

namespace slackline {

namespace {

constexpr std::string_view kGroup = "weights/";

// The settings that decide what the model computes. Shapes do not tell all of them (heads).
void require_same_settings(const std::string& path,
                           const ModelConfig& found,
                           const ModelConfig& expected) {
  JsonReader found_settings = JsonReader::parse(model_config_json(found), path);
  JsonReader expected_settings = JsonReader::parse(model_config_json(expected), path);
  for (const char* name :
       {"layers", "hidden", "heads", "sequence", "vocab", "ffn", "tie_embeddings"}) {
    const std::string value = found_settings.json(name);
    const std::string expected_value = expected_settings.json(name);
    if (value != expected_value) {
      throw FileError(fmt::format("{}: is of another model: model.{} must be {}; got {}",
                                  path,
                                  name,
                                  expected_value,
                                  value));
    }
  }
}

void require_same_tensors(const Checkpoint& checkpoint, const ModelConfig& config) {
  std::set<std::string> known;
  for (const ParameterSpec& spec : parameter_table(config)) {
    const std::string name = std::string(kGroup) + spec.name;
    const auto tensor = checkpoint.tensors().find(name);
    if (tensor == checkpoint.tensors().end()) {
      throw FileError(fmt::format("{}: has no tensor {}", checkpoint.path(), name));
    }
    if (tensor->second.shape != spec.shape || tensor->second.dtype != DType::f32) {
      throw FileError(fmt::format("{}: tensor {} must be f32 {}; got {} {}",
                                  checkpoint.path(),
                                  name,
                                  spec.shape.to_string(),
                                  name_of(tensor->second.dtype),
                                  tensor->second.shape.to_string()));
    }
    known.insert(name);
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (name.starts_with(kGroup) && known.count(name) == 0) {
      throw FileError(fmt::format(
          "{}: tensor {} is not part of its model", checkpoint.path(), shown_value(name)));
    }
  }
}

}  // namespace

Checkpoint open_checkpoint(const std::string& directory) {
  if (!path_exists(directory + "/" + std::string(kManifestName))) {
    if (const auto newest = latest_checkpoint(directory + "/checkpoints")) {
      throw FileError(with_hint(directory + ": is a run directory, not a checkpoint",
                                "its newest is " + *newest));
    }
  }
  Checkpoint checkpoint(directory);
  checkpoint.verify();
  return checkpoint;
}

ModelConfig checkpoint_model(const Checkpoint& checkpoint) {
  const std::string source = fmt::format("{}/{}: model", checkpoint.path(), kManifestName);
  return reading(source, [&] {
    return read_model_config(JsonReader::parse(checkpoint.documents().model, source));
  });
}

void require_model(const Checkpoint& checkpoint, const ModelConfig& config) {
  require_same_settings(checkpoint.path(), checkpoint_model(checkpoint), config);
  require_same_tensors(checkpoint, config);
}

void load_weights(StreamView stream, Checkpoint& checkpoint, Parameters& parameters) {
  for (const Parameter& parameter : parameters.all()) {
    for (const ShardPart& part : parameter.shard.parts) {
      checkpoint.read_part(std::string(kGroup) + parameter.spec.name,
                           part.logical,
                           parameter.weight,
                           {.shape = parameter.shard.shape, .region = part.local});
    }
  }
  parameters.refresh_copies(stream);
}

std::optional<StoredTokenizer> stored_tokenizer(const Checkpoint& checkpoint) {
  if (!checkpoint.has_file(kTokenizerName)) {
    return std::nullopt;
  }
  const std::string path = checkpoint.file(kTokenizerName);
  return StoredTokenizer{.path = path, .json = read_file(path)};
}

std::unique_ptr<Tokenizer> fitting_tokenizer(const StoredTokenizer& stored, std::int64_t vocab) {
  std::unique_ptr<Tokenizer> tokenizer = tokenizer_from_json(stored.json, stored.path);
  if (tokenizer->vocabulary_size() > vocab) {
    throw FileError(fmt::format("{}: has more tokens than the model's vocabulary of {}; got {}",
                                stored.path,
                                vocab,
                                tokenizer->vocabulary_size()));
  }
  return tokenizer;
}

InferenceModel load_inference_model(const std::string& checkpoint_directory,
                                    const Workers& workers) {
  Checkpoint checkpoint = open_checkpoint(checkpoint_directory);
  InferenceModel model{.config = checkpoint_model(checkpoint),
                       .stored_tokenizer = stored_tokenizer(checkpoint)};
  if (model.stored_tokenizer) {
    model.tokenizer = fitting_tokenizer(*model.stored_tokenizer, model.config.vocab);
  }
  require_same_tensors(checkpoint, model.config);
  if (workers.device == Device::cuda &&
      model.config.hidden / model.config.heads > kMostHeadColumnsOfDevice) {
    throw ConfigError(
        fmt::format("--device: {} has heads of {} columns, and kernels of a device "
                    "take {}; use cpu; got cuda",
                    checkpoint.path(),
                    model.config.hidden / model.config.heads,
                    kMostHeadColumnsOfDevice));
  }
  for (const ParameterSpec& spec : parameter_table(model.config)) {
    checkpoint.require_pieces("weights/" + spec.name);  // before there is room for what it claims
  }
  model.parameters = std::make_unique<Parameters>(
      model.config, Parameters::Options{.gradients = Gradients::none, .device = workers.device});
  Stream stream(workers, 0);
  load_weights(stream, checkpoint, *model.parameters);
  model.activation_compression = stored_activation_compression(checkpoint, model.config);
  if (model.activation_compression) {
    model.activation_codecs = make_codec_filter(*model.activation_compression, checkpoint, workers);
  }
  return model;
}

}  // namespace slackline
