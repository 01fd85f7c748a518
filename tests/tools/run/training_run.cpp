#include "tests/tools/run/training_run.h"

#include <cstdlib>
#include <sstream>

#include <fmt/format.h>

#include "core/file_io.h"
#include "tests/support/ended.h"

namespace slackline {

namespace {

using testing::require_done;

// Documents of a pattern that a small model learns within a few steps.
std::string corpus() {
  std::string text;
  for (int document = 0; document < 40; ++document) {
    text += "{\"text\": \"";
    for (int i = 0; i < 30; ++i) {
      text += fmt::format("line {} of document {}. ", i % 7, document % 5);
    }
    text += "\"}\n";
  }
  return text;
}

constexpr const char* kConfig = R"({{
  "run": {{"dir": "{0}/run", "steps": 6, "eval_every": 3, "eval_batches": 1, "save_every": 3}},
  "precision": "fp32",
  "model": {{"layers": 2, "hidden": 32, "heads": 2, "sequence": 32, "vocab": 257, "dropout": 0.1}},
  "data": {{"train": [{{"path": "{0}/corpus", "weight": 1.0}}], "split": [0.8, 0.2, 0]}},
  "batch": {{"global": 8, "micro": 4}},
  "optimizer": {{"lr": 1e-2, "warmup_steps": 2, "decay_embeddings": false}}
}})";

}  // namespace

TrainingRun::TrainingRun() {
  write_file_atomically(path("corpus.jsonl"), corpus());
  write_file_atomically(path("config.json"), fmt::format(kConfig, directory_.path()));
  require_done(run_slackline({"prepare",
                              "--input",
                              path("corpus.jsonl"),
                              "--tokenizer",
                              "byte",
                              "--out",
                              path("corpus")}));
}

std::vector<std::string> TrainingRun::arguments(const std::vector<std::string>& assignments,
                                                const std::vector<std::string>& options) const {
  std::vector<std::string> all = {"train", path("config.json")};
  for (const std::string& assignment : assignments) {
    all.emplace_back("--set");
    all.push_back(assignment);
  }
  all.insert(all.end(), options.begin(), options.end());
  return all;
}

ProcessResult TrainingRun::train(const std::vector<std::string>& assignments,
                                 const std::vector<std::string>& options) const {
  return run_slackline(arguments(assignments, options));
}

ProcessResult TrainingRun::train_in_shell(const std::string& before,
                                          const std::vector<std::string>& assignments,
                                          const std::string& after) const {
  std::string command = before + " " + SL_BINARY;
  for (const std::string& argument : arguments(assignments, {})) {
    command += " '" + argument + "'";
  }
  return run_process("/bin/sh", {"-c", command + " " + after});
}

std::string TrainingRun::checkpoint(int step, const std::string& run) const {
  return fmt::format("{}/checkpoints/step-{:08}", path(run), step);
}

std::string TrainingRun::weights_sha256(const std::string& checkpoint) const {
  return require_done(run_slackline({"inspect", checkpoint, "--sha256"})).out;
}

std::vector<double> TrainingRun::metric(const std::string& field, const std::string& run) const {
  std::istringstream lines(read_file(path(run) + "/metrics.jsonl"));
  std::vector<double> values;
  const std::string key = "\"" + field + "\": ";
  for (std::string line; std::getline(lines, line);) {
    if (const std::size_t at = line.find(key); at != std::string::npos) {
      values.push_back(std::strtod(line.c_str() + at + key.size(), nullptr));
    }
  }
  return values;
}

void require_trained(const TrainingRun& run,
                     int ranks,
                     const std::vector<std::string>& assignments,
                     const std::vector<std::string>& options) {
  require_done(run.train(assignments, with({"--ranks", std::to_string(ranks)}, options)));
}

std::vector<std::string> with(std::vector<std::string> first,
                              const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace slackline
