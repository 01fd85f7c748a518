// Import and export through the binary, against directories that the transformers library wrote
// (tests/reference/hf_golden.py).

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "core/tensor/safetensors.h"
#include "core/tensor/stream.h"
#include "data/formats/tokenizer_file.h"
#include "model/stage.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/support/file_tensor.h"
#include "tests/support/run_process.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/infer/small_checkpoint.h"
#include "tools/infer/model_loader.h"

namespace slackline {
namespace {

using testing::require_done;
using testing::require_refusal;

const std::string kGolden = std::string(SL_SOURCE_DIR) + "/tests/golden/";

std::string import_model(const std::string& hf, const std::string& out) {
  require_done(run_slackline({"import", "--hf", hf, "--out", out}));
  return out;
}

void export_model(const std::string& checkpoint, const std::string& out) {
  require_done(run_slackline({"export", "--checkpoint", checkpoint, "--out", out}));
}

std::string sha256_of(const std::string& checkpoint) {
  return require_done(run_slackline({"inspect", checkpoint, "--sha256"})).out;
}

// Mean loss of a checkpoint over the golden windows.
double golden_loss(const std::string& checkpoint, const nlohmann::json& windows) {
  const InferenceModel model = load_inference_model(checkpoint, 2);
  const auto B = static_cast<std::int64_t>(windows.size());
  const std::int64_t T = model.config.sequence;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  for (const nlohmann::json& window : windows) {
    const auto ids = window.get<std::vector<std::int32_t>>();
    tokens.insert(tokens.end(), ids.begin(), ids.end() - 1);
    targets.insert(targets.end(), ids.begin() + 1, ids.end());
  }
  const Stage::Options options{.micro_batch = {.B = B, .T = T},
                               .purpose = Stage::Purpose::evaluate};
  Stream stream(
      {.num_threads = 2, .workspace_bytes = Stage::workspace_bytes(model.config, options, 2)});
  Stage stage(*model.parameters, model.config, options);
  NoTensorSum no_sum;
  const double sum = stage.evaluate({.stream = stream,
                                     .sum = &no_sum,
                                     .batch = {.tokens = Tensor(std::span(tokens)).reshaped({B, T}),
                                               .targets = Tensor(std::span(targets))}});
  return sum / static_cast<double>(B * T);
}

// Every tensor of the first file, byte for byte in the second, and nothing else there.
void require_same_tensors(const std::string& a, const std::string& b) {
  const SafetensorsFile first(a);
  const SafetensorsFile second(b);
  REQUIRE(first.entries().size() == second.entries().size());
  for (const SafetensorsFile::Entry& entry : first.entries()) {
    INFO(entry.name);
    const SafetensorsFile::Entry* other = second.find(entry.name);
    REQUIRE(other != nullptr);
    REQUIRE(other->shape == entry.shape);
    REQUIRE(other->dtype == entry.dtype);
    const std::span<const std::byte> x = first.bytes(entry);
    const std::span<const std::byte> y = second.bytes(*other);
    REQUIRE(std::equal(x.begin(), x.end(), y.begin(), y.end()));
  }
}

void write_tensors(const std::string& path, const std::map<std::string, Tensor>& tensors) {
  std::vector<NamedTensor> list;
  list.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    list.push_back({.name = name, .tensor = tensor});
  }
  write_safetensors(path, list);
}

void require_refused(const std::string& hf, const std::string& out, const std::string& message) {
  require_refusal(run_slackline({"import", "--hf", hf, "--out", out}), 3, message);
  CHECK_FALSE(std::filesystem::exists(out));
}

}  // namespace

TEST_CASE("models that the library saved, in both spellings, have the library's loss") {
  const auto expected = nlohmann::json::parse(read_file(kGolden + "hf/expected.json"));
  const TemporaryDirectory directory;
  for (const char* name : {"gpt2", "gpt2_old"}) {
    const std::string checkpoint = import_model(kGolden + "hf/" + name, directory.file(name));
    INFO(name);
    // fp32 against the library's float64.
    CHECK(golden_loss(checkpoint, expected["tokens"]) ==
          Approx(expected["loss"].get<double>()).epsilon(2e-6));
  }
  CHECK(sha256_of(directory.file("gpt2")) == sha256_of(directory.file("gpt2_old")));
}

TEST_CASE("import and export give back the library's tensors byte for byte") {
  const TemporaryDirectory directory;
  const std::string golden = kGolden + "hf/gpt2";
  export_model(import_model(golden, directory.file("in")), directory.file("out"));
  require_same_tensors(golden + "/model.safetensors", directory.file("out/model.safetensors"));
  CHECK(SafetensorsFile(directory.file("out/model.safetensors")).metadata().at("format") == "pt");

  const auto before = nlohmann::json::parse(read_file(golden + "/config.json"));
  const auto after = nlohmann::json::parse(read_file(directory.file("out/config.json")));
  for (const char* key : {"n_layer",
                          "n_embd",
                          "n_head",
                          "n_positions",
                          "vocab_size",
                          "n_inner",
                          "resid_pdrop",
                          "tie_word_embeddings",
                          "activation_function"}) {
    INFO(key);
    CHECK(after.at(key) == before.at(key));
  }
}

TEST_CASE("export and import give back a trained model, untied heads included") {
  const TemporaryDirectory directory;
  for (const bool tied : {true, false}) {
    ModelConfig config = small_model(31);
    config.tie_embeddings = tied;
    config.dropout = 0.2F;
    const std::string name = tied ? "tied" : "untied";
    write_small_checkpoint(directory.file(name), config, random_parameters(config, 5));
    export_model(directory.file(name), directory.file(name + "-hf"));
    import_model(directory.file(name + "-hf"), directory.file(name + "-again"));
    CHECK(sha256_of(directory.file(name)) == sha256_of(directory.file(name + "-again")));
    CHECK(checkpoint_model(open_checkpoint(directory.file(name + "-again"))) == config);
  }
}

TEST_CASE("bf16 export rounds to nearest even, and imports as those values") {
  const TemporaryDirectory directory;
  const ModelConfig config = small_model(31);
  const Parameters parameters = random_parameters(config, 6);
  write_small_checkpoint(directory.file("a"), config, parameters);
  require_done(run_slackline({"export",
                              "--checkpoint",
                              directory.file("a"),
                              "--out",
                              directory.file("hf"),
                              "--dtype",
                              "bf16"}));
  import_model(directory.file("hf"), directory.file("b"));
  const InferenceModel rounded = load_inference_model(directory.file("b"), 1);
  for (std::size_t p = 0; p < parameters.all().size(); ++p) {
    const std::span<float> original = parameters.all()[p].weight.span<float>();
    const std::span<float> found = rounded.parameters->all()[p].weight.span<float>();
    for (std::size_t i = 0; i < original.size(); ++i) {
      REQUIRE(found[i] == static_cast<float>(BFloat16(original[i])));
    }
  }
}

TEST_CASE("weights in shards and in half precision are read") {
  const TemporaryDirectory directory;
  const SafetensorsFile golden(kGolden + "hf/gpt2/model.safetensors");
  std::filesystem::create_directories(directory.file("hf"));
  write_file_atomically(directory.file("hf/config.json"),
                        read_file(kGolden + "hf/gpt2/config.json"));
  // Values that a half holds exactly, one subnormal among them, as f16 in the second shard.
  const std::vector<std::uint16_t> halves = {
      0x3c00, 0xc000, 0x0001, 0x8400};  // 1, -2, 2^-24, -2^-14
  std::vector<std::uint16_t> bias(32, 0);
  std::copy(halves.begin(), halves.end(), bias.begin());
  std::vector<NamedTensor> first;
  nlohmann::json weight_map;
  for (const SafetensorsFile::Entry& entry : golden.entries()) {
    const bool moved = entry.name == "transformer.ln_f.bias";
    weight_map[entry.name] = moved ? "b.safetensors" : "a.safetensors";
    if (!moved) {
      first.push_back({.name = entry.name, .tensor = testing::file_tensor(golden, entry.name)});
    }
  }
  write_safetensors(directory.file("hf/a.safetensors"), first);
  write_safetensors(directory.file("hf/b.safetensors"),
                    std::vector<NamedTensor>{{.name = "transformer.ln_f.bias",
                                              .tensor = Tensor(bias.data(), DType::f16, {32})}});
  write_file_atomically(directory.file("hf/model.safetensors.index.json"),
                        nlohmann::json{{"weight_map", weight_map}}.dump());
  const InferenceModel model =
      load_inference_model(import_model(directory.file("hf"), directory.file("out")), 1);
  const float* found = model.parameters->at("ln_f.bias").weight.data<float>();
  CHECK(found[0] == 1.0F);
  CHECK(found[1] == -2.0F);
  CHECK(found[2] == 0x1p-24F);
  CHECK(found[3] == -0x1p-14F);
  CHECK(found[4] == 0.0F);
}

TEST_CASE("GPT-2's tokenizer comes in with the weights and goes out with them") {
  const TemporaryDirectory directory;
  const std::unique_ptr<Tokenizer> golden = load_gpt2_tokenizer(kGolden + "bpe");
  const ModelConfig config = small_model(static_cast<int>(golden->vocabulary_size()));
  write_small_checkpoint(
      directory.file("a"), config, random_parameters(config, 7), tokenizer_to_json(*golden));
  export_model(directory.file("a"), directory.file("hf"));
  const auto json = nlohmann::json::parse(read_file(directory.file("hf/config.json")));
  CHECK(json["eos_token_id"] == golden->end_of_text());

  import_model(directory.file("hf"), directory.file("b"));
  const InferenceModel again = load_inference_model(directory.file("b"), 1);
  REQUIRE(again.tokenizer != nullptr);
  CHECK(tokenizer_to_json(*again.tokenizer) == tokenizer_to_json(*golden));
}

TEST_CASE("GPT-2's tokenizer with a space before texts comes in and goes out as tokenizer.json") {
  const TemporaryDirectory directory;
  const std::unique_ptr<Tokenizer> golden = load_gpt2_tokenizer(kGolden + "bpe");
  const ModelConfig config = small_model(static_cast<int>(golden->vocabulary_size()));
  write_small_checkpoint(
      directory.file("a"), config, random_parameters(config, 7), tokenizer_to_json(*golden));
  export_model(directory.file("a"), directory.file("hf"));
  write_file_atomically(directory.file("hf/tokenizer_config.json"),
                        R"({"add_prefix_space": true, "add_bos_token": true})");
  const ProcessResult imported = require_done(
      run_slackline({"import", "--hf", directory.file("hf"), "--out", directory.file("b")}));
  CHECK_THAT(imported.error,
             Catch::Contains("tokenizer_config.json: add_bos_token is passed over"));
  const InferenceModel spaced = load_inference_model(directory.file("b"), 1);
  REQUIRE(spaced.tokenizer != nullptr);
  CHECK(spaced.tokenizer->encode("the bridge") == golden->encode(" the bridge"));

  export_model(directory.file("b"), directory.file("again"));
  CHECK_FALSE(path_exists(directory.file("again/vocab.json")));
  import_model(directory.file("again"), directory.file("c"));
  const InferenceModel again = load_inference_model(directory.file("c"), 1);
  REQUIRE(again.tokenizer != nullptr);
  CHECK(tokenizer_to_json(*again.tokenizer) == tokenizer_to_json(*spaced.tokenizer));
}

TEST_CASE("a tokenizer.json comes in with the weights and goes out with them") {
  const TemporaryDirectory directory;
  const auto golden = nlohmann::json::parse(read_file(kGolden + "tokenizer_json/neox.json"));
  auto document = nlohmann::json::parse(read_file(kGolden + "tokenizer_json/tokenizer.json"));
  document.merge_patch(golden.at("patch"));
  std::filesystem::create_directories(directory.file("tokenizer"));
  write_file_atomically(directory.file("tokenizer/tokenizer.json"), document.dump());
  const auto tokenizer = load_hugging_face_tokenizer(directory.file("tokenizer"));
  const ModelConfig config = small_model(static_cast<int>(tokenizer->vocabulary_size()));
  write_small_checkpoint(
      directory.file("a"), config, random_parameters(config, 7), tokenizer_to_json(*tokenizer));
  export_model(directory.file("a"), directory.file("hf"));
  CHECK_FALSE(path_exists(directory.file("hf/vocab.json")));

  import_model(directory.file("hf"), directory.file("b"));
  const InferenceModel again = load_inference_model(directory.file("b"), 1);
  REQUIRE(again.tokenizer != nullptr);
  CHECK(tokenizer_to_json(*again.tokenizer) == tokenizer_to_json(*tokenizer));
  const ProcessResult text = run_slackline(
      {"generate", "--checkpoint", directory.file("b"), "--prompt", "the bridge", "--tokens", "4"});
  CHECK(text.exit_code == 0);
  CHECK_THAT(text.out, Catch::StartsWith("the bridge"));
}

TEST_CASE("files that cannot be imported are refused by name with nothing written") {
  const TemporaryDirectory directory;
  const std::string hf = directory.file("hf");
  std::filesystem::copy(kGolden + "hf/gpt2_old", hf);
  std::string message;
  SECTION("no config") {
    std::filesystem::remove(hf + "/config.json");
    message = "config.json: cannot";
  }
  SECTION("another activation") {
    auto config = nlohmann::json::parse(read_file(hf + "/config.json"));
    config["activation_function"] = "relu";
    write_file_atomically(hf + "/config.json", config.dump());
    message = "activation_function: only \"gelu_new\" is supported; got \"relu\"";
  }
  SECTION("weights in another format") {
    std::filesystem::rename(hf + "/model.safetensors", hf + "/pytorch_model.bin");
    message = "holds neither model.safetensors nor model.safetensors.index.json";
  }
  SECTION("a truncated file") {
    const std::string bytes = read_file(hf + "/model.safetensors");
    write_file_atomically(hf + "/model.safetensors", bytes.substr(0, bytes.size() - 100));
    message = "model.safetensors: ";
  }
  SECTION("tokens that vocab.json and merges.txt do not have") {
    write_file_atomically(hf + "/vocab.json", "{}");
    write_file_atomically(hf + "/merges.txt", "");
    write_file_atomically(hf + "/added_tokens.json", R"({"<|endoftext|>": 0, "<|end|>": 1})");
    message = "added_tokens.json: names the token <|end|>";
  }
  SECTION("another end of a text") {
    write_file_atomically(hf + "/vocab.json", "{}");
    write_file_atomically(hf + "/merges.txt", "");
    write_file_atomically(hf + "/tokenizer_config.json", R"({"eos_token": {"content": "</s>"}})");
    message = "tokenizer_config.json: names the token </s>";
  }
  SECTION("a dropout that no model here has") {
    nlohmann::json config = nlohmann::json::parse(read_file(hf + "/config.json"));
    for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
      config[key] = 0.995;
    }
    write_file_atomically(hf + "/config.json", config.dump());
    message = "resid_pdrop: must be 0 to 0.99; got 0.995";
  }
  SECTION("half a tokenizer") {
    write_file_atomically(hf + "/vocab.json", "{}");
    message = "merges.txt: cannot";
  }
  require_refused(hf, directory.file("out"), message);
}

TEST_CASE("tensors that are not the model's are refused by name with nothing written") {
  const TemporaryDirectory directory;
  const std::string hf = directory.file("hf");
  std::filesystem::copy(kGolden + "hf/gpt2_old", hf);
  const SafetensorsFile golden(kGolden + "hf/gpt2_old/model.safetensors");
  std::map<std::string, Tensor> tensors;
  for (const SafetensorsFile::Entry& entry : golden.entries()) {
    tensors[entry.name] = testing::file_tensor(golden, entry.name);
  }
  std::vector<float> other(std::size_t{53} * 32, 0.5F);
  std::string message;
  SECTION("a head that is not the tied table") {
    tensors["lm_head.weight"] = Tensor(other.data(), DType::f32, {53, 32});
    message = "lm_head.weight must equal wte.weight";
  }
  SECTION("a missing tensor") {
    tensors.erase("h.1.ln_2.weight");
    message = "no file holds tensor h.1.ln_2.weight";
  }
  SECTION("a tensor of another model") {
    tensors["h.1.attn.bias2"] = tensors["ln_f.bias"];
    message = "tensor h.1.attn.bias2 is not part of the GPT-2 that config.json describes";
  }
  SECTION("a tensor in both spellings") {
    tensors["transformer.ln_f.bias"] = tensors["ln_f.bias"];
    message = "stands in " + hf + "/model.safetensors as well";
  }
  SECTION("a transposed matrix") {
    tensors["h.0.attn.c_attn.weight"] = tensors["h.0.attn.c_attn.weight"].reshaped({96, 32});
    message = "tensor h.0.attn.c_attn.weight must have shape (32, 96) by config.json; got (96, 32)";
  }
  SECTION("a config of a model that is far larger than its weights") {
    std::string config = read_file(hf + "/config.json");
    const std::size_t at = config.find("\"n_embd\": 32");
    REQUIRE(at != std::string::npos);
    write_file_atomically(hf + "/config.json", config.replace(at, 12, "\"n_embd\": 8388608"));
    message = "must have shape (53, 8388608) by config.json; got (53, 32)";
  }
  SECTION("integers for weights") {
    tensors["ln_f.bias"] = Tensor(other.data(), DType::i32, {32});
    message = "tensor ln_f.bias must be of type f32, f16 or bf16; got i32";
  }
  write_tensors(hf + "/model.safetensors", tensors);
  require_refused(hf, directory.file("out"), message);
}

TEST_CASE("import and export refuse to replace what is there") {
  const TemporaryDirectory directory;
  const std::string checkpoint = import_model(kGolden + "hf/gpt2", directory.file("in"));
  require_refusal(run_slackline({"import", "--hf", kGolden + "hf/gpt2", "--out", checkpoint}),
                  3,
                  "is there already");
  export_model(checkpoint, directory.file("out"));
  const auto refuses = [&](const std::string& there) {
    const ProcessResult out = run_slackline({"export", "--checkpoint", checkpoint, "--out", there});
    CHECK(out.exit_code == 3);
    CHECK_THAT(out.error,
               Catch::Contains("holds a model, a tokenizer or a checkpoint already") &&
                   Catch::Contains("choose another --out"));
  };
  refuses(directory.file("out"));
  const std::string manifest = read_file(checkpoint + "/manifest.json");
  refuses(checkpoint);
  CHECK(read_file(checkpoint + "/manifest.json") == manifest);
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"}) {
    const TemporaryDirectory own;
    write_file_atomically(own.file(name), "mine");
    refuses(own.path());
    CHECK(read_file(own.file(name)) == "mine");
    CHECK_FALSE(path_exists(own.file("model.safetensors")));
  }
}

}  // namespace slackline
