#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "data/formats/tokenizer_file.h"
#include "data/tokenizers/byte_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/support/run_process.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/infer/small_checkpoint.h"

namespace slackline {
namespace {

using testing::require_done;
using testing::require_refusal;

ProcessResult generate(const std::string& checkpoint,
                       const std::string& prompt,
                       const std::vector<std::string>& options) {
  std::vector<std::string> arguments = {"generate", "--checkpoint", checkpoint, "--prompt", prompt};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return run_slackline(arguments);
}

std::string text_of(const ProcessResult& result) {
  return require_done(result).out;
}

// The most likely next token by the training code's forward pass.
std::int32_t most_likely_next(Parameters& parameters,
                              const ModelConfig& config,
                              const std::vector<std::int32_t>& tokens) {
  const std::vector<float> logits = training_logits(parameters, config, tokens);
  const auto last = logits.end() - config.vocab;
  return static_cast<std::int32_t>(std::max_element(last, logits.end()) - last);
}

}  // namespace

TEST_CASE(
    "without a tokenizer ids come in and go out; temperature 0 is the training code's argmax") {
  const TemporaryDirectory directory;
  const ModelConfig config = small_model(40);
  Parameters parameters = random_parameters(config, 1);
  write_small_checkpoint(directory.path() + "/ids", config, parameters);
  const std::string out =
      text_of(generate(directory.file("ids"), "3 17  5", {"--tokens", "7", "--temperature", "0"}));

  std::istringstream words(out);
  const std::vector<std::int32_t> found{std::istream_iterator<std::int32_t>(words), {}};
  std::vector<std::int32_t> expected = {3, 17, 5};
  while (expected.size() < 10) {
    expected.push_back(most_likely_next(parameters, config, expected));
  }
  CHECK(found == expected);
}

TEST_CASE(
    "a seed gives the same text every time, for any number of threads; another seed another") {
  const TemporaryDirectory directory;
  const ModelConfig config = small_model(40);
  write_small_checkpoint(directory.file("ids"), config, random_parameters(config, 1));
  // Longer than the context of 10 positions.
  const std::vector<std::string> options = {"--tokens", "60", "--seed", "5", "--top-k", "20"};
  const std::string text = text_of(generate(directory.file("ids"), "1 2", options));
  CHECK(text_of(generate(directory.file("ids"), "1 2", options)) == text);
  std::string command = std::string("OMP_NUM_THREADS=1 ") + SL_BINARY + " generate --checkpoint " +
                        directory.file("ids") + " --prompt '1 2'";
  for (const std::string& option : options) {
    command += " " + option;
  }
  CHECK(run_process("/bin/sh", {"-c", command}).out == text);
  CHECK(text_of(generate(directory.file("ids"), "1 2", {"--tokens", "60", "--seed", "6"})) != text);
}

TEST_CASE("a checkpoint's tokenizer turns text into tokens and back; the prompt comes first") {
  const TemporaryDirectory directory;
  const ModelConfig config = small_model(257);
  Parameters parameters = random_parameters(config, 2);
  write_small_checkpoint(
      directory.file("text"), config, parameters, tokenizer_to_json(ByteTokenizer()));
  const std::string out =
      text_of(generate(directory.file("text"), "na\u00efve", {"--tokens", "20", "--seed", "3"}));
  CHECK(out.starts_with("na\u00efve"));
  CHECK(out.size() <= 6 + 20 + 1);
  CHECK(out.ends_with("\n"));
}

TEST_CASE("text ends at end-of-text, and an empty prompt begins after one") {
  const TemporaryDirectory directory;
  ModelConfig config = small_model(257);
  config.tie_embeddings = false;
  Parameters parameters = random_parameters(config, 2);
  // The final norm gives a constant row, and the head likes end-of-text best.
  for (const char* name : {"ln_f.weight", "lm_head.weight"}) {
    const std::span<float> values = parameters.at(name).weight.span<float>();
    std::fill(values.begin(), values.end(), 0.0F);
  }
  const std::span<float> bias = parameters.at("ln_f.bias").weight.span<float>();
  std::fill(bias.begin(), bias.end(), 1.0F);
  parameters.at("lm_head.weight")
      .weight.data<float>()[std::size_t{256} * static_cast<std::size_t>(config.hidden)] = 1.0F;
  write_small_checkpoint(
      directory.file("text"), config, parameters, tokenizer_to_json(ByteTokenizer()));
  const std::vector<std::string> greedy = {"--tokens", "20", "--temperature", "0"};
  CHECK(text_of(generate(directory.file("text"), "abc", greedy)) == "abc\n");
  CHECK(text_of(generate(directory.file("text"), "", greedy)) == "\n");
}

TEST_CASE("wrong options end with exit code 2 and a message that names them") {
  const TemporaryDirectory directory;
  const ModelConfig config = small_model(40);
  write_small_checkpoint(directory.file("ids"), config, random_parameters(config, 1));

  struct Case {
    std::string prompt;
    std::vector<std::string> options;
    std::string message;
  };

  for (const Case& wrong : std::vector<Case>{
           {"1 2", {"--tokens", "5", "--compression", "on"}, "compressed no activations"},
           {"1 40", {"--tokens", "5"}, "--prompt: the checkpoint has no tokenizer"},
           {"1 -2", {"--tokens", "5"}, "got -2"},
           {"hello", {"--tokens", "5"}, "got hello"},
           {" ", {"--tokens", "5"}, "one token id at least"},
           {"1", {"--tokens", "0"}, "--tokens"},
           {"1", {"--tokens", "5", "--temperature", "-1"}, "--temperature"},
           {"1", {"--tokens", "5", "--temperature", "nan"}, "--temperature"},
           {"1", {"--tokens", "5", "--top-k", "-3"}, "--top-k"},
           {"1", {}, "--tokens is required"}}) {
    const ProcessResult result = generate(directory.file("ids"), wrong.prompt, wrong.options);
    INFO(wrong.message);
    CHECK(result.exit_code == 2);
    CHECK_THAT(result.error, Catch::Contains(wrong.message));
    CHECK(result.out.empty());
  }
  write_small_checkpoint(directory.file("text"),
                         small_model(257),
                         random_parameters(small_model(257), 1),
                         tokenizer_to_json(ByteTokenizer()));
  require_refusal(
      generate(directory.file("text"), "\xff", {"--tokens", "1"}), 2, "--prompt: must be UTF-8");
}

}  // namespace slackline
