// Tasks: what the command says of a model against the training code's forward pass.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "data/formats/tokenizer_file.h"
#include "data/tokenizers/byte_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/support/run_process.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/infer/small_checkpoint.h"

namespace slackline {

using Catch::Contains;
using testing::require_done;
using Json = nlohmann::ordered_json;

namespace {

using Tokens = std::vector<std::int32_t>;

constexpr int kBytes = 257;  // and an end-of-text

// A model of bytes, its checkpoint, and tasks for it.
class ScoredModel {
 public:
  ScoredModel() {
    write_small_checkpoint(
        directory_.file("bytes"), config_, parameters_, tokenizer_to_json(ByteTokenizer()));
  }

  [[nodiscard]] ProcessResult score(const std::string& lines,
                                    const std::vector<std::string>& more = {"--json"}) const {
    write_file_atomically(tasks(), lines);
    std::vector<std::string> arguments = {
        "score", "--checkpoint", directory_.file("bytes"), "--tasks", tasks()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_slackline(arguments);
  }

  [[nodiscard]] Json scores(const std::string& lines) const {
    const ProcessResult result = require_done(score(lines));
    return Json::parse(result.out);
  }

  [[nodiscard]] std::string tasks() const { return directory_.file("tasks.jsonl"); }

  // Log probabilities of tokens behind a text's last `kept` bytes, by a pass over all of them.
  [[nodiscard]] std::vector<double> log_probabilities(const std::string& before,
                                                      const std::string& after,
                                                      std::size_t kept = 100) {
    Tokens tokens = ids(before.substr(before.size() - std::min(kept, before.size())));
    const std::size_t first = tokens.size();
    for (const std::int32_t id : ids(after)) {
      tokens.push_back(id);
    }
    const std::vector<float> logits =
        training_logits(parameters_, config_, {tokens.begin(), tokens.end() - 1});
    std::vector<double> found;
    for (std::size_t i = first; i < tokens.size(); ++i) {
      const float* const row = logits.data() + (i - 1) * kBytes;
      const double sum = std::accumulate(
          row, row + kBytes, 0.0, [](double s, float x) { return s + std::exp(double{x}); });
      found.push_back(row[tokens[i]] - std::log(sum));
    }
    return found;
  }

 private:
  static Tokens ids(const std::string& text) {
    Tokens tokens;
    for (const char byte : text) {
      tokens.push_back(static_cast<unsigned char>(byte));
    }
    return tokens;
  }

  TemporaryDirectory directory_;
  ModelConfig config_ = small_model(kBytes);
  Parameters parameters_ = random_parameters(config_, 1);
};

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Passes over a context and over one token more round differently.
constexpr double kRounding = 1e-5;

// The model in "ids" and the tasks in "tasks".
ProcessResult score_ids(const TemporaryDirectory& directory) {
  return run_slackline({"score",
                        "--checkpoint",
                        directory.file("ids"),
                        "--tasks",
                        directory.file("tasks"),
                        "--json"});
}

}  // namespace

TEST_CASE("targets have the log probabilities of the training code's pass") {
  ScoredModel model;
  const Json one = model.scores(R"({"context": "ab", "target": "cde", "source": "kept"})");
  const double expected = sum_of(model.log_probabilities("ab", "cde"));
  CHECK(one["choices"].is_null());
  CHECK(one["targets"]["tasks"] == 1);
  CHECK(one["targets"]["log_probability"].get<double>() == Approx(expected).epsilon(kRounding));
  CHECK(one["targets"]["token_log_probability"].get<double>() ==
        Approx(expected / 3.0).epsilon(kRounding));
  CHECK(one["targets"]["hits_error"].is_null());

  // Ten positions: of the context as many tokens are read as leave room for what follows.
  const Json longer = model.scores(R"({"context": "abcdefghijklmnop", "target": "xyz"})");
  CHECK(longer["targets"]["log_probability"].get<double>() ==
        Approx(sum_of(model.log_probabilities("abcdefghijklmnop", "xyz", 8))).epsilon(kRounding));
}

TEST_CASE("the right choice counts by the sum of log probabilities and by their mean") {
  ScoredModel model;
  const std::vector<std::string> choices = {"x", "yes", "maybe so"};
  int by_total = 0;
  int by_mean = 0;
  std::string lines;
  const std::vector<std::string> contexts = {"a", "be", "see", "d e", "often", "g"};
  for (const std::string& context : contexts) {
    std::vector<double> total;
    std::vector<double> mean;
    for (const std::string& choice : choices) {
      total.push_back(sum_of(model.log_probabilities(context, choice, 10 - choice.size() + 1)));
      mean.push_back(total.back() / static_cast<double>(choice.size()));
    }
    // Two answers in turn, so that both right and wrong ones are among them.
    const std::size_t answer = lines.size() % choices.size();
    const auto best = [](const std::vector<double>& values) {
      return static_cast<std::size_t>(std::max_element(values.begin(), values.end()) -
                                      values.begin());
    };
    by_total += best(total) == answer ? 1 : 0;
    by_mean += best(mean) == answer ? 1 : 0;
    lines += Json({{"context", context}, {"choices", choices}, {"answer", answer}}).dump() + "\n\n";
  }
  const Json found = model.scores(lines)["choices"];
  const auto n = static_cast<double>(contexts.size());
  CHECK(found["tasks"] == contexts.size());
  CHECK(found["accuracy"].get<double>() == Approx(by_total / n));
  CHECK(found["mean_accuracy"].get<double>() == Approx(by_mean / n));
  const double p = by_total / n;
  CHECK(found["accuracy_error"].get<double>() == Approx(std::sqrt(p * (1.0 - p) / (n - 1.0))));
}

TEST_CASE("a target is hit where greedy decoding gives all of it") {
  const TemporaryDirectory directory;
  const ModelConfig config = small_model(40);
  write_small_checkpoint(directory.file("ids"), config, random_parameters(config, 1));
  const ProcessResult made = require_done(run_slackline({"generate",
                                                         "--checkpoint",
                                                         directory.file("ids"),
                                                         "--prompt",
                                                         "3 17 5",
                                                         "--tokens",
                                                         "4",
                                                         "--temperature",
                                                         "0"}));
  const std::string target = made.out.substr(std::string("3 17 5").size());
  const std::size_t last = target.find_last_of(' ');
  const std::string other =
      target.substr(0, last) + (target.substr(last, 3) == " 39" ? " 38" : " 39");
  write_file_atomically(
      directory.file("tasks"),
      Json({{"context", "3 17 5"}, {"target", target.substr(0, target.size() - 1)}}).dump() + "\n" +
          Json({{"context", "3 17 5"}, {"target", other}}).dump() + "\n");
  INFO(made.out);
  const ProcessResult result = require_done(score_ids(directory));
  CHECK(Json::parse(result.out)["targets"]["hits"] == 0.5);
}

TEST_CASE("of tokens with equal logits the first is what greedy decoding gives") {
  const TemporaryDirectory directory;
  const ModelConfig config = small_model(40);
  Parameters parameters = random_parameters(config, 1);
  const std::span<float> table = parameters.at("wte.weight").weight.span<float>();
  std::fill(table.begin(), table.end(), 0.0F);
  write_small_checkpoint(directory.file("ids"), config, parameters);
  const auto hits_of = [&](const std::string& target) {
    write_file_atomically(directory.file("tasks"),
                          Json({{"context", "3"}, {"target", target}}).dump() + "\n");
    const ProcessResult result = require_done(score_ids(directory));
    return Json::parse(result.out)["targets"]["hits"].get<double>();
  };
  CHECK(hits_of("0 0") == 1.0);
  CHECK(hits_of("0 1") == 0.0);
  write_file_atomically(directory.file("tasks"),
                        Json({{"context", "three"}, {"target", "1"}}).dump() + "\n");
  CHECK(run_slackline(
            {"score", "--checkpoint", directory.file("ids"), "--tasks", directory.file("tasks")})
            .exit_code == 3);
}

TEST_CASE("lines that are no task are refused with path, line and rule") {
  const ScoredModel model;
  const auto refused = [&](const std::string& lines, const std::string& rule) {
    INFO(lines);
    const ProcessResult result = model.score(lines);
    CHECK(result.exit_code == 3);
    CHECK_THAT(result.error, Contains(model.tasks()) && Contains(rule));
  };
  const std::string good = R"({"context": "a", "target": "b"})"
                           "\n";
  refused("", "has no task");
  refused(good + "{", "line 2");
  refused(good + "\n[1]", "line 3: expected a JSON object");
  refused(R"({"target": "b"})", "line 1: context: required key is missing");
  refused(R"({"context": "a"})", "line 1: target: required key is missing");
  refused(R"({"context": "a", "target": ""})", "target: must be text");
  refused(R"({"context": "a", "choices": ["b"], "answer": 0})", "a list of two or more");
  refused(R"({"context": "a", "choices": ["b", ""], "answer": 0})",
          "choices: number 1 must be text");
  refused(R"({"context": "a", "choices": ["b", "c"], "answer": 2})", "answer: must be at most 1");
  refused(R"({"context": "a", "choices": ["b", "c"], "answer": "0"})",
          "answer: expected an integer");
  refused(R"({"context": "a", "choices": ["b", 1], "answer": 0})", "choices.1: expected a string");
  refused(R"({"context": "a", "target": "0123456789+"})", "has 11 tokens to predict");
  CHECK(run_slackline({"score", "--checkpoint", "/nowhere", "--tasks", model.tasks()}).exit_code ==
        3);
  CHECK_THAT(model.score(good, {}).out, Contains("greedy hits") && Contains("a token"));
  CHECK(model.score(good, {"--compression", "on"}).exit_code == 2);
}

}  // namespace slackline
