#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "core/thread_pool.h"
#include "tools/commands.h"
#include "tools/compression_option.h"
#include "tools/evaluation.h"
#include "tools/model_loader.h"
#include "tools/progress_line.h"

namespace slackline {

namespace {

struct EvaluateOptions {
  std::string checkpoint;
  std::string data;
  std::optional<std::int64_t> batches;
  std::string compression = "off";
  bool json = false;
};

std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

void print(const Evaluation& result, bool json) {
  if (json) {
    fmt::print("{{\"loss\": {}, \"perplexity\": {}, \"tokens\": {}}}\n",
               json_number(result.loss),
               json_number(result.perplexity()),
               result.tokens);
    return;
  }
  fmt::print("loss        {:.6f}\nperplexity  {:.4f}\ntokens      {}\n",
             result.loss,
             result.perplexity(),
             result.tokens);
}

void evaluate(const EvaluateOptions& options) {
  check_compression_option(options.compression);
  const int num_threads = default_num_threads();
  const InferenceModel model = load_inference_model(options.checkpoint, num_threads);
  const std::unique_ptr<TokenFile> tokens = open_token_file(options.data, model.config.vocab);
  std::optional<ProgressLine> line;
  const Evaluation result =
      evaluate_tokens(*model.parameters,
                      model.config,
                      *tokens,
                      {.max_batches = options.batches,
                       .num_threads = num_threads,
                       .progress = [&](std::int64_t done, std::int64_t total) {
                         if (!line) {
                           line.emplace("evaluating", static_cast<std::uint64_t>(total));
                         }
                         line->update(static_cast<std::uint64_t>(done));
                       }});
  line.reset();
  print(result, options.json);
}

}  // namespace

void add_evaluate_command(CLI::App& app, ExitCode& code) {
  auto options = std::make_shared<EvaluateOptions>();
  CLI::App* command =
      app.add_subcommand("evaluate", "Print a checkpoint's loss and perplexity on a data set");
  command->add_option("--checkpoint", options->checkpoint, "Checkpoint directory")->required();
  command->add_option("--data", options->data, "Prefix of .bin and .idx, or an llm.c token file")
      ->required();
  command
      ->add_option("--batches",
                   options->batches,
                   fmt::format("Stop after N batches of {} windows", kEvaluationBatch))
      ->check(CLI::PositiveNumber);
  add_compression_option(*command, options->compression);
  command->add_flag("--json", options->json, "Print the result as JSON, the last line of stdout");
  command->footer(
      "Reads the file's tokens in order, in windows of the model's sequence length that do not\n"
      "overlap; a last partial window is dropped. Computes in fp32.\n"
      "Example: slackline evaluate --checkpoint runs/first/checkpoints/step-00000200 "
      "--data corpus/english --json");
  command->callback([options, &code] {
    evaluate(*options);
    code = ExitCode::done;
  });
}

}  // namespace slackline
