#include "tools/interop/hugging_face_config.h"

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_io.h"
#include "tests/support/catch.h"

namespace slackline {
namespace {

const std::string kGolden = std::string(SL_SOURCE_DIR) + "/tests/golden/hf/";

// The golden config with one key set to JSON text; empty text removes the key.
std::string config_with(const std::string& key, const std::string& value) {
  nlohmann::ordered_json config =
      nlohmann::ordered_json::parse(read_file(kGolden + "gpt2/config.json"));
  if (value.empty()) {
    config.erase(key);
  } else {
    config[key] = nlohmann::ordered_json::parse(value);
  }
  return config.dump();
}

constexpr ModelConfig kGoldenModel{
    .layers = 2, .hidden = 32, .heads = 4, .sequence = 32, .vocab = 53, .ffn = 128};

}  // namespace

TEST_CASE("configs of new and old versions of the library read as the same model") {
  for (const char* directory : {"gpt2", "gpt2_old"}) {
    const std::string path = kGolden + directory + "/config.json";
    CHECK(read_hugging_face_config(read_file(path), path) == kGoldenModel);
  }
}

TEST_CASE("settings that change the function are refused by name, others are passed over") {
  struct Case {
    const char* key;
    const char* value;
  };

  for (const auto& [key, value] : std::vector<Case>{{"activation_function", "\"gelu\""},
                                                    {"layer_norm_epsilon", "1e-6"},
                                                    {"scale_attn_weights", "false"},
                                                    {"scale_attn_by_inverse_layer_idx", "true"},
                                                    {"reorder_and_upcast_attn", "true"},
                                                    {"add_cross_attention", "true"},
                                                    {"pruned_heads", "{\"0\": [1]}"},
                                                    {"quantization_config", "{\"bits\": 4}"},
                                                    {"model_type", "\"llama\""},
                                                    {"model_type", ""},
                                                    {"n_embd", "\"32\""},
                                                    {"n_layer", "0"},
                                                    {"n_layer", "65537"},
                                                    {"n_embd", "16777220"},
                                                    {"n_head", "5"},
                                                    {"n_positions", ""},
                                                    {"attn_pdrop", "0.3"},
                                                    {"tie_word_embeddings", "1"}}) {
    INFO(key << " = " << value);
    CHECK_THROWS_AS(read_hugging_face_config(config_with(key, value), "config.json"), FileError);
    CHECK_THROWS_WITH(read_hugging_face_config(config_with(key, value), "config.json"),
                      Catch::StartsWith(std::string("config.json: ") + key + ": "));
  }
  CHECK_THROWS_WITH(
      read_hugging_face_config(config_with("activation_function", "\"gelu\""), "config.json"),
      "config.json: activation_function: only \"gelu_new\" is supported; got \"gelu\"");
  CHECK(read_hugging_face_config(config_with("use_cache", "false"), "config.json") == kGoldenModel);
}

TEST_CASE("a config that is silent has the library's defaults") {
  std::string silent = R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, )"
                       R"("n_positions": 4, "vocab_size": 9})";
  const ModelConfig config = read_hugging_face_config(silent, "config.json");
  CHECK(config.ffn == 32);
  CHECK(config.tie_embeddings);
  CHECK(config.dropout == 0.1F);
}

TEST_CASE("what is no JSON object is refused with the file's name") {
  for (const char* text : {"", "[]", "{\"n_layer\": }"}) {
    CHECK_THROWS_AS(read_hugging_face_config(text, "dir/config.json"), FileError);
    CHECK_THROWS_WITH(read_hugging_face_config(text, "dir/config.json"),
                      Catch::StartsWith("dir/config.json: "));
  }
}

TEST_CASE("a written config reads back as the same model, with the dropout trained with") {
  const ModelConfig config{.layers = 3,
                           .hidden = 12,
                           .heads = 3,
                           .sequence = 7,
                           .vocab = 300,
                           .ffn = 50,
                           .dropout = 0.1F,
                           .tie_embeddings = false};
  const std::string text =
      hugging_face_config_json(config, {.dtype = DType::bf16, .end_of_text = 299});
  CHECK(read_hugging_face_config(text, "config.json") == config);
  const auto json = nlohmann::json::parse(text);
  for (const char* key : {"embd_pdrop", "attn_pdrop", "resid_pdrop"}) {
    CHECK(json[key] == 0.1);
  }
  CHECK(json["n_inner"] == 50);
  CHECK(json["n_ctx"] == 7);
  CHECK(json["torch_dtype"] == "bfloat16");
  CHECK(json["eos_token_id"] == 299);
  CHECK(json["layer_norm_epsilon"] == 1e-5);
  CHECK(json["architectures"] == nlohmann::json{"GPT2LMHeadModel"});
}

TEST_CASE("the usual ffn width is written as null, as the library does") {
  const auto json = nlohmann::json::parse(hugging_face_config_json(kGoldenModel, {}));
  CHECK(json["n_inner"].is_null());
  CHECK(json["eos_token_id"].is_null());
  CHECK(json["torch_dtype"] == "float32");
}

}  // namespace slackline
