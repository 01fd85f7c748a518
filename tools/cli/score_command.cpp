#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/terminal.h"
#include "data/formats/tasks_file.h"
#include "tools/cli/commands.h"
#include "tools/cli/inference_options.h"
#include "tools/infer/task_scores.h"
#include "tools/record/progress_line.h"

namespace slackline {

namespace {

struct ScoreCommandOptions : InferenceOptions {
  std::string tasks;
  bool json = false;
};

std::string json_number(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "null";
}

std::string json(const TaskScores& scores) {
  std::string choices = "null";
  if (scores.by_total.tasks > 0) {
    choices = fmt::format(R"({{"tasks": {}, "accuracy": {}, "accuracy_error": {}, )"
                          R"("mean_accuracy": {}, "mean_accuracy_error": {}}})",
                          scores.by_total.tasks,
                          scores.by_total.value(),
                          json_number(scores.by_total.standard_error()),
                          scores.by_mean.value(),
                          json_number(scores.by_mean.standard_error()));
  }
  std::string targets = "null";
  if (scores.greedy.tasks > 0) {
    targets =
        fmt::format(R"({{"tasks": {}, "hits": {}, "hits_error": {}, "log_probability": {}, )"
                    R"("token_log_probability": {}}})",
                    scores.greedy.tasks,
                    scores.greedy.value(),
                    json_number(scores.greedy.standard_error()),
                    scores.target_log_probability / static_cast<double>(scores.greedy.tasks),
                    scores.target_log_probability / static_cast<double>(scores.target_tokens));
  }
  return fmt::format(R"({{"choices": {}, "targets": {}}})", choices, targets);
}

std::string share_text(const Share& share) {
  const std::optional<double> error = share.standard_error();
  return fmt::format("{:.4f}{}", share.value(), error ? fmt::format(" +- {:.4f}", *error) : "");
}

void print(const TaskScores& scores) {
  if (scores.by_total.tasks > 0) {
    print_lines(
        fmt::format("choices          {}\n"
                    "accuracy         {} by log probability\n"
                    "                 {} by its mean over tokens\n",
                    scores.by_total.tasks,
                    share_text(scores.by_total),
                    share_text(scores.by_mean)));
  }
  if (scores.greedy.tasks > 0) {
    print_lines(
        fmt::format("targets          {}\n"
                    "greedy hits      {}\n"
                    "log probability  {:.4f} a target, {:.4f} a token\n",
                    scores.greedy.tasks,
                    share_text(scores.greedy),
                    scores.target_log_probability / static_cast<double>(scores.greedy.tasks),
                    scores.target_log_probability / static_cast<double>(scores.target_tokens)));
  }
}

void score(const ScoreCommandOptions& options) {
  const std::vector<Task> tasks = read_tasks(options.tasks);
  const Workers workers = make_workers(options);
  const InferenceModel model = open_model(options, workers);
  const TaskScores scores = [&] {
    ProgressLine line("scoring", tasks.size());  // gone before results are printed
    return score_tasks(
        model,
        tasks,
        options.tasks,
        {.workers = workers,
         .filter = options.compression == "on" ? model.activation_codecs.get() : nullptr,
         .progress = [&](std::int64_t done, std::int64_t /*total*/) {
           line.update(static_cast<std::uint64_t>(done));
         }});
  }();
  options.json ? print_json(json(scores) + "\n") : print(scores);
}

}  // namespace

void add_score_command(Command root) {
  auto options = std::make_shared<ScoreCommandOptions>();
  Command command =
      root.add_command("score", "Rank the choices of multiple-choice tasks, or hit targets");
  command.option("--checkpoint", &options->checkpoint, "Checkpoint directory", {.required = true});
  command.option("--tasks", &options->tasks, "JSON lines, one task each", {.required = true});
  add_compression_option(command, *options, "off unless given");
  command.flag("--json", &options->json, "Print the result as JSON, the last line of stdout");
  command.footer(
      "A line {\"context\": \"...\", \"choices\": [\" ...\", \" ...\"], \"answer\": 1} counts as\n"
      "right where the answer is the most likely choice: by the log probability of its tokens\n"
      "together, and by their mean, which does not favour short ones. A line {\"context\": "
      "\"...\",\n"
      "\"target\": \" ...\"} is hit where greedy decoding gives the target. Text is continued as "
      "it\n"
      "stands: a choice brings its own space. For a checkpoint without a tokenizer texts are "
      "token\n"
      "ids separated by spaces. Shares have their standard error.\n"
      "Example: slackline score --checkpoint runs/first/checkpoints/step-00000200 "
      "--tasks hellaswag.jsonl --json");
  command.runs([options] { score(*options); });
}

}  // namespace slackline
