// Models whose training compressed activations between pipeline stages, evaluated and sampled with
// and without that.

#include <cmath>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/training_run.h"

namespace slackline {
namespace {

using testing::require_done;
using testing::require_refusal;

// One document of 8 windows of 32 tokens.
std::string valid_text() {
  std::string text;
  for (int i = 0; text.size() < 260; ++i) {
    text += "line " + std::to_string(i % 7) + " of document " + std::to_string(i % 3) + ". ";
  }
  return text.substr(0, 260);
}

// The compress section that gives all forward messages this codec.
std::string all_forward(const std::string& codec) {
  return R"({"policy": "all", "pipeline_forward": )" + codec + "}";
}

// Six steps of a pipeline of two stages.
struct CompressedRun {
  TrainingRun run;
  std::vector<std::string> layout;

  CompressedRun(const std::string& compress,
                const std::vector<std::string>& assignments,
                const std::string& ranks = "2")
      : layout({"parallel.pipeline=2",
                "data.split=null",
                R"(data.valid=[{"path": ")" + run.path("valid") + R"("}])",
                "compress=" + compress}) {
    write_file_atomically(run.path("valid.txt"), valid_text());
    require_done(run_slackline({"prepare",
                                "--input",
                                run.path("valid.txt"),
                                "--tokenizer",
                                "byte",
                                "--out",
                                run.path("valid")}));
    std::vector<std::string> all = layout;
    all.insert(all.end(), assignments.begin(), assignments.end());
    require_done(run.train(all, {"--ranks", ranks}));
  }

  ProcessResult evaluate(const std::vector<std::string>& options) const {
    std::vector<std::string> arguments = {
        "evaluate", "--checkpoint", run.checkpoint(6), "--data", run.path("valid")};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return require_done(run_slackline(arguments));
  }

  nlohmann::json json(std::vector<std::string> options) const {
    options.emplace_back("--json");
    const std::string out = evaluate(options).out;
    return nlohmann::json::parse(out.substr(out.rfind('\n', out.size() - 2) + 1));
  }

  nlohmann::json manifest() const {
    return nlohmann::json::parse(read_file(run.checkpoint(6) + "/manifest.json"));
  }

  std::string greedy(const std::vector<std::string>& options) const {
    std::vector<std::string> arguments = {"generate",
                                          "--checkpoint",
                                          run.checkpoint(6),
                                          "--prompt",
                                          "line 3 of ",
                                          "--tokens",
                                          "40",
                                          "--temperature",
                                          "0"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return require_done(run_slackline(arguments)).out;
  }
};

constexpr const char* kTopK = R"({"codec": "top_k", "ratio": 0.05, "error_feedback": "lazy"})";
constexpr const char* kFullRank = R"({"codec": "low_rank", "rank": 32, "always": true})";

}  // namespace

TEST_CASE("a model trained with top_k activations is evaluated as training evaluated it") {
  // Training's evaluation takes the file's 8 windows in another order; messages of one window each
  // are the same in both.
  const CompressedRun trained(all_forward(kTopK), {"batch.micro=1"});
  const nlohmann::json both = trained.json({});
  const nlohmann::json on = trained.json({"--compression", "on"});
  const nlohmann::json off = trained.json({"--compression", "off"});
  CHECK(both["loss"] == off["loss"]);
  CHECK(both["compressed"]["loss"] == on["loss"]);
  CHECK(both["compressed"]["perplexity"] == on["perplexity"]);
  CHECK(off.size() == 3);
  CHECK(on.size() == 3);
  CHECK(on["tokens"] == 256);

  // Both compute in fp32; passes of 8 windows sum products in other tiles than passes of one
  // (1e-6; here the bits are equal), and where two elements are as large to rounding another one
  // may be kept.
  const double reported = trained.run.metric("eval_loss").back();
  CHECK(on["loss"].get<double>() == Approx(reported).epsilon(1e-4));
  CHECK(std::abs(on["loss"].get<double>() - off["loss"].get<double>()) > 1e-3);
}

TEST_CASE("text output labels what was evaluated; generate compresses when asked to") {
  const CompressedRun trained(all_forward(kTopK), {});
  const std::string both = trained.evaluate({}).out;
  CHECK_THAT(both,
             Catch::Contains("activations as they are\nloss ") &&
                 Catch::Contains("activations compressed as in training\nloss "));
  const std::string on = trained.evaluate({"--compression", "on"}).out;
  CHECK(both.ends_with(on));
  CHECK_THAT(on, Catch::StartsWith("activations compressed as in training\n"));
  CHECK_THAT(trained.evaluate({"--compression", "off"}).out, Catch::StartsWith("loss "));

  CHECK(trained.greedy({}) == trained.greedy({"--compression", "off"}));
  const std::string text = trained.greedy({"--compression", "on"});
  CHECK_THAT(text, Catch::StartsWith("line 3 of "));
  CHECK(trained.greedy({"--compression", "on"}) == text);
}

TEST_CASE("low_rank of full rank changes nothing, on two tensor ranks and in partial groups") {
  // Messages of 3 windows: the file's 8 make two of them and a smaller one.
  const CompressedRun trained(
      all_forward(kFullRank), {"parallel.tensor=2", "batch.global=6", "batch.micro=3"}, "4");
  const nlohmann::json result = trained.json({});
  // Each of 32 directions is rounded twice, in fp32.
  CHECK(result["compressed"]["loss"].get<double>() ==
        Approx(result["loss"].get<double>()).epsilon(1e-5));
  CHECK(trained.greedy({"--compression", "on"}) == trained.greedy({}));

  const nlohmann::json manifest = trained.manifest();
  CHECK(manifest["codec"] ==
        nlohmann::json::parse(R"({"seed": 1234, "tokens": 96, "channels": 32, "tensor": 2,
          "boundaries": [{"stage": 0, "after_layer": 0,
                          "codec": {"codec": "low_rank", "rank": 32, "always": true}}]})"));
  CHECK(manifest["plan"]["from_step"] == 1);
  CHECK(manifest["plan"]["classes"].size() >= 4);
  for (const nlohmann::json& row : manifest["plan"]["classes"]) {
    CHECK(row["codec"].is_null() == (row["site"] != "pipeline_forward"));
  }
}

TEST_CASE("phases of a boundary may have codecs with state of their own, and are resumed") {
  std::string classes;
  for (const char* phase : {"warmup", "steady"}) {
    classes += std::string(classes.empty() ? "" : ", ") +
               R"({"site": "pipeline_forward", "phase": ")" + phase +
               R"(", "codec": {"codec": "low_rank", "always": true, "rank": )" +
               (std::string(phase) == "steady" ? "32}}" : "2}}");
  }
  const std::vector<std::string> job = {"batch.micro=1", "optimizer.schedule=constant"};
  const CompressedRun trained(R"({"policy": "list", "classes": [)" + classes + "]}", job);
  const nlohmann::json tensors = trained.manifest()["tensors"];
  CHECK(tensors["residual/pipeline_forward/1.right_factor"]["shape"][1] == 2);
  CHECK(tensors["residual/pipeline_forward/1+2.right_factor"]["shape"][1] == 32);
  const nlohmann::json result = trained.json({});  // the steady phase's: full rank
  CHECK(result["compressed"]["loss"].get<double>() ==
        Approx(result["loss"].get<double>()).epsilon(1e-5));
  std::vector<std::string> longer = trained.layout;
  longer.insert(longer.end(), job.begin(), job.end());
  longer.emplace_back("run.steps=8");
  const ProcessResult resumed = trained.run.train(longer, {"--ranks", "2", "--resume"});
  CHECK(resumed.exit_code == 0);
  CHECK_THAT(resumed.out + resumed.error, !Catch::Contains("begins anew"));
  longer.push_back("run.dir=" + trained.run.path("whole"));
  CHECK(trained.run.train(longer, {"--ranks", "2"}).exit_code == 0);
  CHECK(trained.run.weights_sha256(trained.run.checkpoint(8)) ==
        trained.run.weights_sha256(trained.run.checkpoint(8, "whole")));
}

TEST_CASE("a plan that leaves activations plain writes no codec document") {
  const TrainingRun run;
  REQUIRE(run.train({"parallel.pipeline=2",
                     R"(compress={"policy": "all", "pipeline_backward":
                        {"codec": "top_k", "ratio": 0.1}})"},
                    {"--ranks", "2"})
              .exit_code == 0);
  const auto manifest = nlohmann::json::parse(read_file(run.checkpoint(6) + "/manifest.json"));
  CHECK(manifest["codec"].is_null());
  CHECK(!manifest["plan"].is_null());
  require_refusal(run_slackline({"evaluate",
                                 "--checkpoint",
                                 run.checkpoint(6),
                                 "--data",
                                 run.path("corpus"),
                                 "--compression",
                                 "on"}),
                  2,
                  "compressed no activations");
}

}  // namespace slackline
