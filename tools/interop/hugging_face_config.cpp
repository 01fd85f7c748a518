#include "tools/interop/hugging_face_config.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/shown_text.h"
#include "core/strict_json.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kDefaultDropout = 0.1;  // the library's, where a config is silent

// One config.json while it is being read. A key that is absent has the library's default.
class ConfigFile {
 public:
  ConfigFile(std::string_view text, const std::string& source)
      : source_(source), json_(parse_strict_object(text, source)) {}

  [[nodiscard]] bool has(const char* key) const {
    const auto found = json_.find(key);
    return found != json_.end() && !found->is_null();
  }

  // Refuses any value but the one that our model has. An absent key passes.
  void require(const char* key, const Json& supported) const {
    if (has(key) && json_.at(key) != supported) {
      fail(key, fmt::format("only {} is supported", supported.dump()));
    }
  }

  [[nodiscard]] int size(const char* key, std::int64_t most = kMaxModelSize) const {
    if (!has(key) || !json_.at(key).is_number_integer()) {
      fail(key, "must be a whole number");
    }
    const auto value = json_.at(key).get<std::int64_t>();
    if (value < 1 || value > most) {
      fail(key, fmt::format("must be from 1 to {}", most));
    }
    return static_cast<int>(value);
  }

  [[nodiscard]] double number(const char* key, double default_value) const {
    if (!has(key)) {
      return default_value;
    }
    if (!json_.at(key).is_number()) {
      fail(key, "must be a number");
    }
    return json_.at(key).get<double>();
  }

  [[nodiscard]] bool boolean(const char* key, bool default_value) const {
    if (!has(key)) {
      return default_value;
    }
    if (!json_.at(key).is_boolean()) {
      fail(key, "must be true or false");
    }
    return json_.at(key).get<bool>();
  }

  [[noreturn]] void fail(const char* key, std::string_view rule) const {
    const auto found = json_.find(key);
    throw FileError(fmt::format("{}: {} {}; got {}",
                                source_,
                                key,
                                rule,
                                found == json_.end() ? "nothing" : shown_value(found->dump())));
  }

 private:
  std::string source_;
  Json json_;
};

// Every setting that changes what the model computes and that we have one value of.
void refuse_other_functions(const ConfigFile& file) {
  if (!file.has("model_type")) {
    file.fail("model_type", "must be \"gpt2\"");
  }
  file.require("model_type", "gpt2");
  file.require("activation_function", "gelu_new");
  file.require("layer_norm_epsilon", 1e-5);
  file.require("scale_attn_weights", true);
  file.require("scale_attn_by_inverse_layer_idx", false);
  file.require("reorder_and_upcast_attn", false);
  file.require("add_cross_attention", false);
  file.require("pruned_heads", Json::object());
  if (file.has("quantization_config")) {
    file.fail("quantization_config", "is not supported: give weights that are not quantized");
  }
}

float read_dropout(const ConfigFile& file) {
  const double dropout = file.number("resid_pdrop", kDefaultDropout);
  for (const char* key : {"embd_pdrop", "attn_pdrop"}) {
    if (file.number(key, kDefaultDropout) != dropout) {
      file.fail(key,
                fmt::format("must be the same as resid_pdrop ({}); they do not change the "
                            "weights, so making them equal is safe",
                            dropout));
    }
  }
  if (!(dropout >= 0.0 && dropout <= kMostDropout)) {
    file.fail("resid_pdrop", fmt::format("must be 0 to {}", kMostDropout));
  }
  return static_cast<float>(dropout);
}

constexpr std::string_view kConfigFormat = R"({{
  "activation_function": "gelu_new",
  "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": {dropout},
  "bos_token_id": {end_of_text},
  "embd_pdrop": {dropout},
  "eos_token_id": {end_of_text},
  "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2",
  "n_ctx": {sequence},
  "n_embd": {hidden},
  "n_head": {heads},
  "n_inner": {ffn},
  "n_layer": {layers},
  "n_positions": {sequence},
  "reorder_and_upcast_attn": false,
  "resid_pdrop": {dropout},
  "scale_attn_by_inverse_layer_idx": false,
  "scale_attn_weights": true,
  "tie_word_embeddings": {tied},
  "torch_dtype": "{dtype}",
  "vocab_size": {vocab}
}}
)";

}  // namespace

ModelConfig read_hugging_face_config(std::string_view text, const std::string& source) {
  const ConfigFile file(text, source);
  refuse_other_functions(file);
  ModelConfig config{.layers = file.size("n_layer", kMaxLayers),
                     .hidden = file.size("n_embd"),
                     .heads = file.size("n_head"),
                     .sequence = file.size("n_positions"),
                     .vocab = file.size("vocab_size"),
                     .dropout = read_dropout(file),
                     .tie_embeddings = file.boolean("tie_word_embeddings", true)};
  if (config.hidden % config.heads != 0) {
    file.fail("n_head", fmt::format("must divide n_embd = {}", config.hidden));
  }
  config.ffn = file.has("n_inner") ? file.size("n_inner", 4 * kMaxModelSize) : 4 * config.hidden;
  return config;
}

std::string hugging_face_config_json(const ModelConfig& config,
                                     const HuggingFaceConfigOptions& options) {
  const std::string end_of_text =
      options.end_of_text ? fmt::format("{}", *options.end_of_text) : "null";
  const bool default_ffn = config.ffn == 4 * config.hidden;
  return fmt::format(kConfigFormat,
                     fmt::arg("dropout", config.dropout),
                     fmt::arg("end_of_text", end_of_text),
                     fmt::arg("sequence", config.sequence),
                     fmt::arg("hidden", config.hidden),
                     fmt::arg("heads", config.heads),
                     fmt::arg("ffn", default_ffn ? "null" : fmt::format("{}", config.ffn)),
                     fmt::arg("layers", config.layers),
                     fmt::arg("tied", config.tie_embeddings),
                     fmt::arg("dtype", options.dtype == DType::bf16 ? "bfloat16" : "float32"),
                     fmt::arg("vocab", config.vocab));
}

}  // namespace slackline
