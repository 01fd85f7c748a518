#include "tools/interop/hugging_face_config.h"

#include <fmt/format.h>

#include "core/file_errors.h"
#include "core/json_reader.h"

namespace slackline {

namespace {

constexpr double kDefaultDropout = 0.1;  // the library's, where a config is silent

int size_of_model(JsonReader& file, std::string_view key, std::int64_t most = kMaxModelSize) {
  return static_cast<int>(file.integer(key, {.min = 1, .max = most}));
}

// Every setting that changes what the model computes and that we have one value of. An absent key
// has the library's default, which is that value.
void refuse_other_functions(JsonReader& file) {
  if (!file.has("model_type")) {
    file.fail("model_type", "must be \"gpt2\"");
  }
  file.only("model_type", "\"gpt2\"");
  file.only("activation_function", "\"gelu_new\"");
  file.only("layer_norm_epsilon", "1e-05");
  file.only("scale_attn_weights", "true");
  file.only("scale_attn_by_inverse_layer_idx", "false");
  file.only("reorder_and_upcast_attn", "false");
  file.only("add_cross_attention", "false");
  file.only("pruned_heads", "{}");
  if (file.has("quantization_config")) {
    file.fail("quantization_config", "is not supported: give weights that are not quantized");
  }
}

float read_dropout(JsonReader& file) {
  const NumberRule rule{.default_value = kDefaultDropout};
  const double dropout = file.number("resid_pdrop", rule);
  for (const char* key : {"embd_pdrop", "attn_pdrop"}) {
    if (file.number(key, rule) != dropout) {
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

ModelConfig read_model(JsonReader file) {
  refuse_other_functions(file);
  ModelConfig config{.layers = size_of_model(file, "n_layer", kMaxLayers),
                     .hidden = size_of_model(file, "n_embd"),
                     .heads = size_of_model(file, "n_head"),
                     .sequence = size_of_model(file, "n_positions"),
                     .vocab = size_of_model(file, "vocab_size"),
                     .dropout = read_dropout(file),
                     .tie_embeddings = file.boolean("tie_word_embeddings", true)};
  if (config.hidden % config.heads != 0) {
    file.fail("n_head", fmt::format("must divide n_embd = {}", config.hidden));
  }
  config.ffn =
      file.has("n_inner") ? size_of_model(file, "n_inner", 4 * kMaxModelSize) : 4 * config.hidden;
  return config;
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
  return reading(source, [&] { return read_model(JsonReader::parse(text, source)); });
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
