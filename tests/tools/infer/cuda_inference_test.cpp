// Trained models on the CUDA device, through the binary: what evaluate and generate make of them
// there and on the CPU.

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/support/places.h"
#include "tests/support/skipped.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

namespace {

using testing::require_done;
using testing::require_refusal;

const std::vector<std::string> kOnCuda = {"--device", "cuda"};

ProcessResult run_cuda_binary(const std::vector<std::string>& arguments) {
  return run_process(test_place("SLACKLINE_BINARY", SL_CUDA_BINARY), arguments);
}

// A model of some steps, which the CPU trained.
struct TrainedModel {
  TrainingRun run;

  explicit TrainedModel(const std::vector<std::string>& assignments = {},
                        const std::vector<std::string>& options = {}) {
    require_done(run.train(assignments, options));
  }

  [[nodiscard]] std::vector<std::string> evaluation(const std::vector<std::string>& options,
                                                    const std::string& data = "corpus") const {
    return with({"evaluate", "--checkpoint", run.checkpoint(6), "--data", run.path(data), "--json"},
                options);
  }
};

std::string out_of(const ProcessResult& result) {
  return require_done(result).out;
}

double loss_of(const ProcessResult& result) {
  const std::string out = out_of(result);
  const std::string key = "\"loss\": ";
  const std::size_t at = out.rfind(key);
  REQUIRE(at != std::string::npos);
  return std::strtod(out.c_str() + at + key.size(), nullptr);
}

// Text longer than the context of 32 tokens.
std::vector<std::string> generation(const std::string& checkpoint) {
  return {"generate",
          "--checkpoint",
          checkpoint,
          "--prompt",
          "line 3 of ",
          "--tokens",
          "30",
          "--temperature",
          "0"};
}

// Sums in other orders, in fp32 on both devices.
constexpr double kLoss = 2e-6;
// A rounding decides which elements a codec keeps, or which directions.
constexpr double kCompressedLoss = 1e-4;

}  // namespace

TEST_CASE("evaluate gives the same loss on the CUDA device and on the CPU") {
  const TrainedModel model;
  // 10 windows of 32 tokens, one token more, and a rest: the last pass has 2 windows in place of 8.
  std::string text;
  while (text.size() < 340) {
    text += "line " + std::to_string(text.size() % 7) + " of document 3. ";
  }
  write_file_atomically(model.run.path("few.txt"), text.substr(0, 340));
  static_cast<void>(out_of(run_slackline({"prepare",
                                          "--input",
                                          model.run.path("few.txt"),
                                          "--tokenizer",
                                          "byte",
                                          "--out",
                                          model.run.path("few")})));
  const ProcessResult on_cpu = run_slackline(model.evaluation({}, "few"));
  const double expected = loss_of(on_cpu);
  CHECK_THAT(on_cpu.out, Catch::Contains("\"tokens\": 320}"));
  const ProcessResult on_cuda = run_cuda_binary(model.evaluation(kOnCuda, "few"));
  CHECK(std::abs(loss_of(on_cuda) / expected - 1.0) <= kLoss);
  CHECK_THAT(on_cuda.out, Catch::Contains("\"tokens\": 320}"));
}

TEST_CASE("activations are compressed on the CUDA device as on the CPU") {
  int num_changed = 0;
  for (const char* codec : {R"({"codec": "top_k", "ratio": 0.05})",
                            R"({"codec": "random_k", "ratio": 0.5})",
                            R"({"codec": "quantize", "bits": 4})",
                            R"({"codec": "low_rank", "rank": 8})"}) {
    INFO(codec);
    const TrainedModel model(
        {"parallel.pipeline=2",
         std::string(R"(compress={"policy": "all", "pipeline_forward": )") + codec + "}"},
        {"--ranks", "2"});
    const std::vector<std::string> compressed = {"--batches", "2", "--compression", "on"};
    const double expected = loss_of(run_slackline(model.evaluation(compressed)));
    const double plain =
        loss_of(run_slackline(model.evaluation({"--batches", "2", "--compression", "off"})));
    const double found = loss_of(run_cuda_binary(model.evaluation(with(compressed, kOnCuda))));
    CHECK(std::abs(found / expected - 1.0) <= kCompressedLoss);
    CHECK(std::abs(plain / expected - 1.0) > kCompressedLoss);
    const std::vector<std::string> text = generation(model.run.checkpoint(6));
    const std::vector<std::string> compressed_text = with(text, {"--compression", "on"});
    const std::string expected_text = out_of(run_slackline(compressed_text));
    CHECK(out_of(run_cuda_binary(with(compressed_text, kOnCuda))) == expected_text);
    const std::string plain_text = out_of(run_slackline(with(text, {"--compression", "off"})));
    num_changed += plain_text == expected_text ? 0 : 1;
  }
  CHECK(num_changed > 0);  // so that text shows whether it was made of compressed activations
}

TEST_CASE("greedy text is the same on the CUDA device and on the CPU") {
  const TrainedModel model({"run.steps=20", "run.eval_every=0", "run.save_every=20"});
  const std::vector<std::string> arguments = generation(model.run.checkpoint(20));
  const std::string expected = out_of(run_slackline(arguments));
  CHECK(out_of(run_cuda_binary(with(arguments, kOnCuda))) == expected);
}

TEST_CASE("a model that the device has no memory for is refused there, so the device computes",
          "[memory]") {
  const TrainedModel model;
  for (const std::vector<std::string>& command :
       {model.evaluation({"--batches", "1"}), generation(model.run.checkpoint(6))}) {
    INFO(command.front());
    const ProcessResult plain = run_cuda_binary(with(command, kOnCuda));
    static_cast<void>(out_of(plain));
    if (plain.error.find("emulated") == std::string::npos) {
      testing::skip_test("a GPU has more memory than this test asks for");
      return;
    }
    std::vector<std::string> arguments = with(command, kOnCuda);
    arguments.insert(
        arguments.begin(),
        {"SL_EMULATED_DEVICE_MEMORY=1000", test_place("SLACKLINE_BINARY", SL_CUDA_BINARY)});
    require_refusal(run_process("/usr/bin/env", arguments), 4, "out of device memory");
  }
}

TEST_CASE("a device that is not known is refused, and one that is not there says why") {
  const TrainedModel model;
  const ProcessResult unknown = run_slackline(model.evaluation({"--device", "gpu"}));
  CHECK(unknown.exit_code == 2);
  CHECK_THAT(unknown.error, Catch::Contains("--device") && Catch::Contains("cuda"));
  // The binary of preset cpu has no backend; in preset cuda it is the one that finds a device.
  if (std::string(SL_BINARY) != SL_CUDA_BINARY) {
    const ProcessResult absent = run_slackline(model.evaluation(kOnCuda));
    CHECK(absent.exit_code == 2);
    CHECK_THAT(absent.error, Catch::Contains("--device") && Catch::Contains("built without CUDA"));
  }
}

}  // namespace slackline
