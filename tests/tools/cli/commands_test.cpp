// The binary's subcommands from outside: help, results, messages and exit codes.

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/support/run_process.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/infer/small_checkpoint.h"

namespace slackline {
namespace {

using testing::require_done;
using testing::require_refusal;

// A checkpoint of a byte model whose logits are all zero, and a prepared text of 101 tokens.
struct UniformModel {
  TemporaryDirectory directory;
  std::string checkpoint = directory.file("checkpoint");
  std::string data = directory.file("data");

  UniformModel() {
    const ModelConfig config = small_model(257);
    Parameters parameters = random_parameters(config, 1);
    const std::span<float> table = parameters.at("wte.weight").weight.span<float>();
    std::fill(table.begin(), table.end(), 0.0F);
    write_small_checkpoint(checkpoint, config, parameters);
    write_file_atomically(directory.file("text.txt"), std::string(100, 'x'));
    const ProcessResult result = require_done(run_slackline(
        {"prepare", "--input", directory.file("text.txt"), "--tokenizer", "byte", "--out", data}));
    CHECK_THAT(result.out, Catch::Contains("tokens      101"));
  }

  ProcessResult evaluate(const std::vector<std::string>& options) const {
    std::vector<std::string> arguments = {"evaluate", "--checkpoint", checkpoint, "--data", data};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run_slackline(arguments);
  }
};

std::string last_line(std::string text) {
  while (text.ends_with('\n')) {
    text.pop_back();
  }
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

TEST_CASE("every subcommand has help with an example") {
  for (const char* command :
       {"prepare", "evaluate", "generate", "inspect", "import", "export", "compare"}) {
    const ProcessResult result = run_slackline({command, "--help"});
    INFO(command);
    CHECK(result.exit_code == 0);
    CHECK_THAT(result.out, Catch::Contains(std::string("Example: slackline ") + command + " "));
  }
  const ProcessResult unknown = run_slackline({"evalute"});
  CHECK(unknown.exit_code == 2);
  CHECK(run_slackline({}).exit_code == 2);
}

TEST_CASE("evaluate prints loss, perplexity and tokens, and JSON as the last line") {
  const UniformModel model;
  const ProcessResult text = model.evaluate({});
  CHECK(text.exit_code == 0);
  CHECK_THAT(text.out,
             Catch::Contains("perplexity  257.0000") && Catch::Contains("tokens      100"));

  const auto json = nlohmann::json::parse(last_line(model.evaluate({"--json"}).out));
  CHECK(json.size() == 3);
  CHECK(json["loss"].get<double>() == Approx(std::log(257.0)).epsilon(1e-6));
  CHECK(json["perplexity"].get<double>() == Approx(257.0).epsilon(1e-5));
  CHECK(json["tokens"] == 100);
  const auto limited =
      nlohmann::json::parse(last_line(model.evaluate({"--batches", "1", "--json"}).out));
  CHECK(limited["tokens"] == 80);
}

TEST_CASE("evaluate refuses what is wrong by name and with the right code") {
  const UniformModel model;
  const ProcessResult compression = model.evaluate({"--compression", "on"});
  CHECK(compression.exit_code == 2);
  CHECK_THAT(compression.error, Catch::Contains("--compression: the training of"));
  CHECK(model.evaluate({"--compression", "off"}).exit_code == 0);
  CHECK(model.evaluate({"--compression", "maybe"}).exit_code == 2);
  CHECK(model.evaluate({"--batches", "0"}).exit_code == 2);

  require_refusal(
      run_slackline({"evaluate", "--checkpoint", "/nowhere", "--data", model.data}), 3, "/nowhere");
  require_refusal(
      run_slackline(
          {"evaluate", "--checkpoint", model.checkpoint, "--data", model.directory.file("none")}),
      3,
      model.directory.file("none"));
}

TEST_CASE("evaluate refuses data with tokens beyond the vocabulary") {
  const UniformModel model;
  const ModelConfig config = small_model(100);
  const std::string small = model.directory.file("small");
  write_small_checkpoint(small, config, random_parameters(config, 1));
  const ProcessResult result =
      run_slackline({"evaluate", "--checkpoint", small, "--data", model.data});
  CHECK(result.exit_code == 3);
  CHECK_THAT(result.error, Catch::Contains("data.bin") && Catch::Contains("120"));  // an 'x'
}

TEST_CASE("inspect prints what a checkpoint holds, its JSON and one hash over the weights") {
  const UniformModel model;
  const ProcessResult text = run_slackline({"inspect", model.checkpoint});
  CHECK(text.exit_code == 0);
  for (const char* part :
       {"step       3", "h.1.mlp.c_proj.weight", "(20, 12)", "weights-00000.safetensors"}) {
    CHECK_THAT(text.out, Catch::Contains(part));
  }
  const ProcessResult hash = run_slackline({"inspect", model.checkpoint, "--sha256"});
  CHECK(hash.out.size() == 65);
  CHECK(hash.out.find_first_not_of("0123456789abcdef\n") == std::string::npos);

  const ProcessResult both = run_slackline({"inspect", model.checkpoint, "--sha256", "--json"});
  const auto json = nlohmann::json::parse(both.out);
  CHECK(json["step"] == 3);
  CHECK(json["sha256"].get<std::string>() + "\n" == hash.out);
  CHECK(json["model"]["vocab"] == 257);
  CHECK(json["tensors"]["weights/wpe.weight"]["shape"] == nlohmann::json{10, 12});
  CHECK(json["files"]["weights-00000.safetensors"]["bytes"] ==
        std::filesystem::file_size(model.checkpoint + "/weights-00000.safetensors"));
}

TEST_CASE("a shard with a flipped bit is refused by every command that reads it") {
  const UniformModel model;
  const std::string shard = model.checkpoint + "/weights-00000.safetensors";
  std::string bytes = read_file(shard);
  bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 1);
  write_file_atomically(shard, bytes);
  const std::string out = model.directory.file("out");
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"inspect", model.checkpoint},
           {"evaluate", "--checkpoint", model.checkpoint, "--data", model.data},
           {"generate", "--checkpoint", model.checkpoint, "--prompt", "1", "--tokens", "1"},
           {"export", "--checkpoint", model.checkpoint, "--out", out}}) {
    const ProcessResult result = run_slackline(command);
    INFO(command.front());
    CHECK(result.exit_code == 3);
    CHECK_THAT(result.error, Catch::Contains(shard));
    CHECK(result.out.empty());
  }
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE(
    "compare ends with 0 within the tolerance, with 1 and \"differs\" beyond, with 3 unread") {
  const TemporaryDirectory directory;
  const auto write_run = [&](const std::string& name, const std::string& second_loss) {
    std::filesystem::create_directories(directory.file(name));
    write_file_atomically(directory.file(name) + "/metrics.jsonl",
                          "{\"step\": 1, \"loss\": 4, \"grad_norm\": 1}\n{\"step\": 2, \"loss\": " +
                              second_loss + ", \"grad_norm\": 1}\n");
  };
  write_run("a", "2.0");
  write_run("b", "2.02");
  const auto compare = [&](const std::string& other, const std::string& tolerance) {
    return run_slackline(
        {"compare", directory.file("a"), directory.file(other), "--tolerance", tolerance});
  };
  const ProcessResult same = compare("b", "0.01");
  CHECK(same.exit_code == 0);
  CHECK_THAT(last_line(same.out), Catch::StartsWith("same: largest relative difference 0.0099"));
  const ProcessResult differs = compare("b", "0.009");
  CHECK(differs.exit_code == 1);
  CHECK_THAT(last_line(differs.out), Catch::StartsWith("differs: "));
  CHECK_THAT(differs.out, Catch::Contains("first difference at step 2: 2 and 2.02"));
  CHECK(compare("a", "0").exit_code == 0);
  CHECK(compare("c", "0").exit_code == 3);
  CHECK(compare("b", "-1").exit_code == 2);
  CHECK(compare("b", "nan").exit_code == 2);
  write_run("d", "null");
  CHECK(compare("d", "1").exit_code == 1);
}

TEST_CASE("a program plans for CUDA with and without it, and trains with it alone") {
  const std::string config = SL_SOURCE_DIR "/configs/gpt2_1.5b_h200_2x8.json";
  const ProcessResult plan = run_slackline({"plan", config});
  CHECK(plan.exit_code == 0);
  CHECK_FALSE(plan.out.empty());
  CHECK(run_slackline({"train", config, "--print-config"}).exit_code == 0);
  CHECK(run_slackline({"train", config, "--validate"}).exit_code == 0);
  if constexpr (SL_WITH_CUDA == 0) {
    const ProcessResult trained = run_slackline({"train", config});
    CHECK(trained.exit_code == 2);
    CHECK_THAT(trained.error, Catch::Contains("device: ") && Catch::Contains("built without CUDA"));
  }
}

TEST_CASE("a config is valid if some layout that it leaves open has what it compresses") {
  const auto validate = [](const std::vector<std::string>& assignments) {
    std::vector<std::string> words = {
        "train", SL_SOURCE_DIR "/configs/tiny_data_pipeline.json", "--validate"};
    for (const std::string& assignment : assignments) {
      words.insert(words.end(), {"--set", assignment});
    }
    return run_slackline(words);
  };
  const std::string table = R"(compress={"policy": "all", "embedding": {"codec": "cast"}})";
  const std::string one_stage = "parallel.pipeline=1";
  // Gradients of groups are added up in passes where there is one group alone.
  CHECK(validate({table, one_stage, "parallel.data_strategy=NIG"}).exit_code == 0);
  CHECK(validate({table, one_stage, "parallel.data_strategy=NIG", "parallel.group=2"}).exit_code ==
        2);
  CHECK(validate({table, one_stage, "parallel.data_strategy=auto"}).exit_code == 0);
  require_refusal(validate({R"(compress={"policy": "all", "pipeline_forward": {"codec": "cast"}})",
                            one_stage,
                            "parallel.data_strategy=auto"}),
                  2,
                  "compress.pipeline_forward");
  require_refusal(validate({R"(compress={"policy": "replay", "plan": "no/plan.json"})",
                            "parallel.data_strategy=auto"}),
                  2,
                  "no/plan.json");
  // Gathers need weights that are shared out, moments an optimizer that is not.
  require_refusal(
      validate(
          {R"(compress={"policy": "all", "parameter_gather": {"codec": "cast"}, "data_gradient": )"
           R"({"codec": "quantize", "bits": 4, "units": "moments"}})",
           "parallel.data_strategy=auto"}),
      2,
      "no strategy has the transfers");
  const ProcessResult no_links = validate({"network.links=no/links.json"});
  CHECK(no_links.exit_code != 0);
  CHECK_THAT(no_links.error, Catch::Contains("no/links.json"));
}

TEST_CASE("a config that is printed is checked first where both are asked for") {
  const std::string config = SL_SOURCE_DIR "/configs/tiny_pipeline.json";
  const std::string no_gathers =
      R"(compress={"policy": "all", "parameter_gather": {"codec": "cast"}})";
  const ProcessResult refused =
      run_slackline({"train", config, "--set", no_gathers, "--validate", "--print-config"});
  CHECK(refused.exit_code == 2);
  CHECK(refused.out.empty());
  const ProcessResult printed = run_slackline({"train", config, "--validate", "--print-config"});
  CHECK(printed.exit_code == 0);
  CHECK(printed.out.starts_with("{"));
}

TEST_CASE("runs without a loss in common are not the same") {
  const TemporaryDirectory run;
  write_file_atomically(run.file("metrics.jsonl"),
                        "{\"step\": 1, \"loss\": null, \"grad_norm\": null}\n");
  require_refusal(run_slackline({"compare", run.path(), run.path(), "--tolerance", "0"}),
                  3,
                  "has no loss that is a number in common");
}

TEST_CASE("whole numbers on the command line are decimal and within their range") {
  const TemporaryDirectory directory;
  const std::string out = directory.file("set");
  write_file_atomically(directory.file("text"), "some text, some more text, and the last of it");
  const auto vocabulary = [&](const std::string& text) {
    return run_slackline({"prepare",
                          "--input",
                          directory.file("text"),
                          "--tokenizer",
                          "sentencepiece",
                          "--train-sentencepiece",
                          text,
                          "--out",
                          out});
  };
  const ProcessResult zero = vocabulary("0300");  // 192 to those that read it as octal
  CHECK(zero.exit_code == 0);
  CHECK_THAT(zero.out, Catch::Contains("300"));
  for (const char* text : {"99999999999999999999", "-1", "1e3", "0x10", "7.0", " 7", ""}) {
    INFO(text);
    const ProcessResult result = vocabulary(text);
    CHECK(result.exit_code == 2);
    CHECK_THAT(result.error,
               Catch::Contains("--train-sentencepiece") && Catch::Contains("whole number"));
  }
  for (const char* seed : {"-1", "18446744073709551616"}) {
    INFO(seed);
    require_refusal(
        run_slackline(
            {"generate", "--checkpoint", out, "--prompt", "a", "--tokens", "1", "--seed", seed}),
        2,
        "--seed: must be a whole number from 0 to 18446744073709551615");
  }
}

}  // namespace slackline
