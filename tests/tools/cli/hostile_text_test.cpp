// Text from outside, through every door that it can come in by: whatever a file, a config, a
// command line, the environment or another rank holds, nothing of it reaches a terminal unescaped.

#include "tests/support/hostile_text.h"

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "data/formats/tokenizer_file.h"
#include "data/tokenizers/byte_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/infer/small_checkpoint.h"
#include "tests/tools/run/training_run.h"

namespace slackline {
namespace {

using testing::require_done;
using Json = nlohmann::ordered_json;

const std::string kHostile(kHostileText);
const std::string kBytes(kHostileBytes);

void require_harmless(const std::string& text) {
  INFO(text);
  const std::size_t harm = first_harm(text);
  REQUIRE(harm == std::string::npos);
  REQUIRE(text.find("\nerror forged") == std::string::npos);
}

// Ends with this code, is harmless, and shows what it was given, so that it was not just left out.
void require_shown(const ProcessResult& result, int code) {
  INFO(result.error);
  REQUIRE(result.exit_code == code);
  require_harmless(result.out);
  require_harmless(result.error);
  REQUIRE((result.out + result.error).find("hostile") != std::string::npos);
}

}  // namespace

TEST_CASE("commands, options and paths of a command line are shown escaped") {
  const TrainingRun run;
  require_shown(run_slackline({kBytes}), 2);
  require_shown(run_slackline({"train", run.path("config.json"), "--" + kBytes}), 2);
  require_shown(run_slackline({"train", run.path(kBytes)}), 2);
  require_shown(run_slackline({"plan", run.path(kBytes)}), 2);
  require_shown(run_slackline({"plan", run.path("config.json"), "--cluster", run.path(kBytes)}), 2);
  require_shown(run_slackline({"plan", run.path("config.json"), "--costs", run.path(kBytes)}), 2);
  require_shown(run_slackline({"sweep", run.path(kBytes)}), 2);
  require_shown(run_slackline({"inspect", run.path(kBytes)}), 3);
  require_shown(run_slackline({"report", run.path(kBytes)}), 3);
  require_shown(run_slackline({"compare", run.path(kBytes), run.path(kBytes), "--tolerance", "0"}),
                3);
  require_shown(run_slackline({"import", "--hf", run.path(kBytes), "--out", run.path("out")}), 3);
  require_shown(run_slackline({"export", "--checkpoint", run.path(kBytes), "--out", run.path("o")}),
                3);
  require_shown(
      run_slackline({"evaluate", "--checkpoint", run.path(kBytes), "--data", run.path("corpus")}),
      3);
  require_shown(run_slackline({"generate",
                               "--checkpoint",
                               run.path(kBytes),
                               "--prompt",
                               "x",
                               "--tokens",
                               "1",
                               "--seed",
                               "1"}),
                3);
  for (const std::string& tokenizer : {std::string("byte"),
                                       "sentencepiece:" + run.path(kBytes),
                                       "gpt2:" + run.path(kBytes),
                                       kBytes}) {
    const int code = tokenizer == kBytes ? 2 : 3;
    require_shown(run_slackline({"prepare",
                                 "--input",
                                 run.path(tokenizer == "byte" ? kBytes : "corpus.jsonl"),
                                 "--tokenizer",
                                 tokenizer,
                                 "--out",
                                 run.path("out")}),
                  code);
  }
}

TEST_CASE("keys and values of a config and of --set are shown escaped") {
  const TrainingRun run;
  const auto refused = [&](const std::string& content) {
    write_file_atomically(run.path("hostile.json"), content);
    require_shown(run_slackline({"train", run.path("hostile.json")}), 2);
    require_shown(run_slackline({"plan", run.path("hostile.json")}), 2);
  };
  Json config = Json::parse(read_file(run.path("config.json")));
  const auto with_value = [&](const char* pointer, const Json& value) {
    Json changed = config;
    changed[Json::json_pointer(pointer)] = value;
    return changed.dump();
  };
  Json unknown = config;
  unknown["run"][kHostile] = 1;
  refused(unknown.dump());
  refused(with_value("/precision", kHostile));
  refused(with_value("/optimizer/schedule", kHostile));
  refused(with_value("/model/layers", kHostile));
  refused(with_value("/compress", {{"policy", kHostile}}));
  refused(with_value("/run/steps", Json{{kHostile, kHostile}}));
  refused("{\"" + kBytes + "\": 1}");                                          // not UTF-8
  refused("{\"run\": {\"hostile\\u001b[2J\": 1, \"hostile\\u001b[2J\": 2}}");  // twice
  refused("{\"run\": hostile\x1b[2J}");

  require_shown(run.train({kBytes}), 2);
  require_shown(run.train({kBytes + "=1"}), 2);
  require_shown(run.train({kHostile + "=1"}), 2);
  require_shown(run.train({"precision=" + kBytes}), 2);
  require_shown(run.train({"data.train." + kHostile + "=1"}), 2);
  require_shown(run.train({"data.train.0.path=" + run.path(kHostile)}), 3);
  require_shown(
      run.train({"data.train.0.path=" + run.path(kHostile), "parallel.data=2"}, {"--ranks", "2"}),
      3);  // told by another rank
  require_shown(run.train({"compress.policy=replay", "compress.plan=" + run.path(kHostile)}), 2);
  require_shown(run.train({"network.links=" + run.path(kHostile)}), 2);
  require_shown(run.train({"checkpoint.init_from=" + run.path(kHostile)}), 3);
  require_shown(run.train({"checkpoint.resume_from=" + run.path(kHostile)}), 3);
  require_shown(run_slackline(run.arguments({"run.dir=" + run.path(kHostile)}, {"--print-config"})),
                0);
  const ProcessResult threads = require_done(run.train_in_shell(
      "OMP_NUM_THREADS=\"$(printf '2 hostile\\033[2J\\377')\"", {"run.steps=1"}));
  require_harmless(threads.out + threads.error);
}

TEST_CASE("a run whose names are hostile trains, and all that it prints and writes is harmless") {
  const TrainingRun run;
  const std::string dir = run.path(kHostile);
  for (const char* ending : {".bin", ".idx", ".tokenizer.json"}) {
    write_file_atomically(dir + "-data" + ending, read_file(run.path("corpus") + ending));
  }
  const std::vector<std::string> hostile = {"run.dir=" + dir, "data.train.0.path=" + dir + "-data"};
  const ProcessResult trained = require_done(run.train(hostile));
  require_harmless(trained.out);
  require_harmless(trained.error);
  require_harmless(read_file(dir + "/plan.txt"));
  require_shown(run.train(hostile), 3);  // the directory holds a run
  require_shown(run.train(hostile, {"--resume"}), 0);
  require_shown(run_slackline({"report", dir}), 0);
  REQUIRE(first_harm(read_file(dir + "/report.html")) == std::string::npos);
  require_harmless(run_slackline({"compare", dir, dir, "--tolerance", "0"}).out);
}

TEST_CASE("names in a checkpoint are shown escaped, and its JSON keeps them") {
  const TemporaryDirectory directory;
  const std::string checkpoint = directory.file("checkpoint");
  const ModelConfig config = small_model(100);
  write_small_checkpoint(checkpoint, config, random_parameters(config, 1));
  Json manifest = Json::parse(read_file(checkpoint + "/manifest.json"));
  manifest.erase("xxh3");  // what an attacker would do
  Json& tensors = manifest["tensors"];
  tensors["residual/" + kHostile + "/" + kHostile] = tensors.begin().value();
  write_file_atomically(checkpoint + "/manifest.json", manifest.dump());

  const ProcessResult json = run_slackline({"inspect", checkpoint, "--json"});
  require_harmless(json.out);
  require_harmless(json.error);
  const ProcessResult text = run_slackline({"inspect", checkpoint});
  require_harmless(text.out);
  require_harmless(text.error);
  INFO(text.out + text.error);
  REQUIRE((text.out + text.error).find("hostile") != std::string::npos);

  tensors["weights/" + kHostile] = tensors.begin().value();
  write_file_atomically(checkpoint + "/manifest.json", manifest.dump());
  require_shown(run_slackline({"evaluate", "--checkpoint", checkpoint, "--data", "nowhere"}), 3);

  manifest["files"][kHostile] = manifest["files"].begin().value();
  write_file_atomically(checkpoint + "/manifest.json", manifest.dump());
  require_shown(run_slackline({"inspect", checkpoint}), 3);
}

TEST_CASE("tensor names and settings of a model from outside are shown escaped") {
  const TemporaryDirectory directory;
  const std::string golden = std::string(SL_SOURCE_DIR) + "/tests/golden/hf/gpt2/";
  const auto import_with = [&](const std::string& config, const std::string& weights) {
    write_file_atomically(directory.file("config.json"), config);
    write_file_atomically(directory.file("model.safetensors"), weights);
    return run_slackline({"import", "--hf", directory.path(), "--out", directory.file("out")});
  };
  const auto file_of = [](const std::string& header) {
    std::string bytes(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) {
      bytes[i] = static_cast<char>(header.size() >> (8 * i));
    }
    return bytes + header;
  };
  const std::string config = read_file(golden + "config.json");
  const std::string weights = read_file(golden + "model.safetensors");
  const Json empty = {{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
  require_shown(import_with(config, file_of(Json{{kHostile, empty}}.dump())), 3);
  require_shown(import_with(config, file_of(Json{{kHostile, {{"dtype", kHostile}}}}.dump())), 3);
  require_shown(import_with(config, file_of("{\"" + kBytes + "\": 1}")), 3);
  Json named = Json::parse(config);
  named["model_type"] = kHostile;
  require_shown(import_with(named.dump(), weights), 3);
  named = Json::parse(config);
  named["activation_function"] = kHostile;
  require_shown(import_with(named.dump(), weights), 3);
}

TEST_CASE("plans, clusters, costs and sweeps from outside are shown escaped") {
  const TrainingRun run;
  const auto file = [&](const Json& content) {
    write_file_atomically(run.path("hostile.json"), content.dump());
    return run.path("hostile.json");
  };
  const std::string config = run.path("config.json");
  require_shown(run_slackline({"plan", config, "--cluster", file({{kHostile, 1}})}), 2);
  require_shown(run_slackline({"plan", config, "--costs", file({{"ops", {{{"kind", kHostile}}}}})}),
                2);
  require_shown(
      run_slackline(
          {"sweep",
           file({{"dir", run.path("sweep")}, {"base", config}, {"grid", {{kHostile, {1, 2}}}}})}),
      2);
  require_shown(run_slackline({"sweep",
                               file({{"dir", run.path("sweep")},
                                     {"base", config},
                                     {"grid", {{"precision", {kHostile}}}}})}),
                2);
  require_shown(
      run.train({"compress.policy=replay",
                 "compress.plan=" + file(Json::array({{{"from_step", 1}, {kHostile, kHostile}}}))}),
      2);
}

TEST_CASE("records that hold hostile text are read, compared and reported without harm") {
  const TrainingRun run;
  REQUIRE(run.train().exit_code == 0);
  const std::string metrics = run.run_dir() + "/metrics.jsonl";
  write_file_atomically(metrics, read_file(metrics) + "{\"step\": \"" + kBytes + "\"}\n{}\n");
  require_shown(run_slackline({"compare", run.run_dir(), run.run_dir(), "--tolerance", "0"}), 3);
  require_shown(run_slackline({"report", run.run_dir()}), 3);
}

TEST_CASE("generated text is printed as it is, and without harm on a terminal") {
  const TemporaryDirectory directory;
  const ModelConfig config = small_model(257);
  const std::string checkpoint = directory.file("checkpoint");
  write_small_checkpoint(
      checkpoint, config, random_parameters(config, 1), tokenizer_to_json(ByteTokenizer()));
  const std::vector<std::string> arguments = {"generate",
                                              "--checkpoint",
                                              checkpoint,
                                              "--prompt",
                                              kHostile,
                                              "--tokens",
                                              "200",
                                              "--seed",
                                              "1"};
  const ProcessResult raw = require_done(run_slackline(arguments));
  REQUIRE(raw.out.find(kHostile) != std::string::npos);

  std::string command = SL_BINARY;
  for (const std::string& argument : arguments) {
    command += " '" + argument + "'";
  }
  const ProcessResult terminal =
      require_done(run_process("/usr/bin/script", {"-qec", command, "/dev/null"}));
  std::string shown = terminal.out;
  std::erase(shown, '\r');  // the terminal's own line ends
  REQUIRE(first_harm(shown) == std::string::npos);
  REQUIRE(shown.find("hostile\\x1b[2J\\u202e\\u009b\\u200b\\r") != std::string::npos);
}

}  // namespace slackline
