#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "core/json_string.h"
#include "core/terminal.h"
#include "data/formats/stored_tokenizer.h"
#include "tools/cli/commands.h"
#include "tools/cli/inference_options.h"
#include "tools/infer/evaluation.h"
#include "tools/record/progress_line.h"

namespace slackline {

namespace {

struct EvaluateOptions : InferenceOptions {
  std::string data;
  std::optional<std::int64_t> batches;
  bool json = false;
};

// What was evaluated: one of the two, or both.
struct Results {
  std::optional<Evaluation> plain{};
  std::optional<Evaluation> compressed{};  // activations as in training

  [[nodiscard]] const Evaluation& first() const { return plain ? *plain : *compressed; }
};

std::string json(const Results& results) {
  const auto losses = [](const Evaluation& result) {
    return fmt::format(R"("loss": {}, "perplexity": {})",
                       json_number(result.loss),
                       json_number(result.perplexity()));
  };
  const bool both = results.plain && results.compressed;
  return fmt::format(
      R"({{{}, "tokens": {}{}}})",
      losses(results.first()),
      results.first().tokens,
      both ? fmt::format(R"(, "compressed": {{{}}})", losses(*results.compressed)) : "");
}

void print(const Results& results) {
  const auto show = [](const char* activations, const Evaluation& result) {
    print_lines(fmt::format("{}loss        {:.6f}\nperplexity  {:.4f}\ntokens      {}\n",
                            activations,
                            result.loss,
                            result.perplexity(),
                            result.tokens));
  };
  if (results.plain) {
    show(results.compressed ? "activations as they are\n" : "", *results.plain);
  }
  if (results.compressed) {
    show("activations compressed as in training\n", *results.compressed);
  }
}

// Groups of as many tokens as a training message had: whole ones in every pass but the last.
std::int64_t windows_per_pass(const InferenceModel& model) {
  const std::int64_t message =
      std::max<std::int64_t>(1, model.activation_compression->tokens / model.config.sequence);
  return std::max(message, kEvaluationBatch / message * message);
}

void evaluate(const EvaluateOptions& options) {
  const Workers workers = make_workers(options);
  const InferenceModel model = open_model(options, workers);
  const std::unique_ptr<TokenFile> tokens = open_token_file(options.data, model.config.vocab);
  const std::optional<StoredTokenizer> of_data = data_tokenizer(*tokens);
  if (of_data && model.stored_tokenizer) {
    require_same_tokenizer(*of_data, *model.stored_tokenizer);
  }
  const auto run = [&](BoundaryFilter* filter) {
    std::optional<ProgressLine> line;
    const auto progress = [&](std::int64_t done, std::int64_t total) {
      if (!line) {
        line.emplace("evaluating", static_cast<std::uint64_t>(total));
      }
      line->update(static_cast<std::uint64_t>(done));
    };
    return evaluate_tokens(
        *model.parameters,
        model.config,
        *tokens,
        {.max_batches = options.batches,
         .workers = workers,
         .filter = filter,
         .windows_per_pass = filter == nullptr ? kEvaluationBatch : windows_per_pass(model),
         .progress = progress});
  };
  Results results;
  if (options.compression != "on") {
    results.plain = run(nullptr);
  }
  if (options.compression != "off" && model.activation_codecs != nullptr) {
    results.compressed = run(model.activation_codecs.get());
  }
  options.json ? print_json(json(results) + "\n") : print(results);
}

}  // namespace

void add_evaluate_command(Command root) {
  auto options = std::make_shared<EvaluateOptions>();
  Command command =
      root.add_command("evaluate", "Print a checkpoint's loss and perplexity on a data set");
  command.option("--checkpoint", &options->checkpoint, "Checkpoint directory", {.required = true});
  command.option("--data",
                 &options->data,
                 "Prefix of .bin and .idx, or an llm.c token file",
                 {.required = true});
  command.option("--batches",
                 &options->batches,
                 fmt::format("Stop after N batches of {} windows", kEvaluationBatch),
                 {.limit = Limit::positive});
  add_compression_option(command, *options, "unless given, with and without");
  add_device_option(command, *options);
  command.flag("--json", &options->json, "Print the result as JSON, the last line of stdout");
  command.footer(
      "Reads the file's tokens in order, in windows of the model's sequence length that do not\n"
      "overlap; a last partial window is dropped. Computes in fp32. A model whose training\n"
      "compressed activations (site pipeline_forward) is evaluated without and with that;\n"
      "--compression takes one of the two alone.\n"
      "Example: slackline evaluate --checkpoint runs/first/checkpoints/step-00000200 "
      "--data corpus/english --json");
  command.runs([options] { evaluate(*options); });
}

}  // namespace slackline
