#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "core/shown_text.h"
#include "core/terminal.h"
#include "data/prepare.h"
#include "tools/commands.h"
#include "tools/progress_line.h"

namespace slackline {

namespace {

void prepare_with_progress(const PrepareOptions& options) {
  std::optional<ProgressLine> line;
  const PrepareSummary summary = prepare(options, [&](const PrepareProgress& progress) {
    if (!line) {
      line.emplace("preparing", progress.bytes_total);
    }
    line->update(progress.bytes_read);
  });
  line.reset();
  print_lines(
      fmt::format("{0}.bin, {0}.idx, {0}.tokenizer.json\n"
                  "documents   {1}\ntokens      {2}\nvocabulary  {3}\nbytes       {4}\n",
                  shown_line(options.out),
                  summary.documents,
                  summary.tokens,
                  summary.vocabulary,
                  summary.text_bytes));
}

}  // namespace

void add_prepare_command(CLI::App& app, ExitCode& code) {
  auto options = std::make_shared<PrepareOptions>();
  CLI::App* command = app.add_subcommand(
      "prepare", "Turn text into a data set of tokens (Megatron's .bin and .idx)");
  command
      ->add_option("--input",
                   options->inputs,
                   "UTF-8 text files, and files of JSON lines with a \"text\" key (*.jsonl)")
      ->required()
      ->type_name("FILE");
  command
      ->add_option(
          "--tokenizer", options->tokenizer, "byte, sentencepiece:MODEL, gpt2:DIR or hf:DIR")
      ->required();
  command->add_option("--out", options->out, "Prefix of the files to write")
      ->required()
      ->type_name("PREFIX");
  command
      ->add_option("--train-sentencepiece",
                   options->train_sentencepiece,
                   "Train a SentencePiece model of so many pieces on the input first")
      ->type_name("VOCAB")
      ->check(CLI::PositiveNumber);
  command->add_flag_callback(
      "--special-tokens",
      [options] { options->special_tokens = SpecialTokens::recognized; },
      "Special tokens in the text are tokens (gpt2 and hf); without it they are text");
  command->footer(
      "Example: slackline prepare --input english.txt --tokenizer byte --out corpus/english");
  command->callback([options, &code] {
    prepare_with_progress(*options);
    code = ExitCode::done;
  });
}

}  // namespace slackline
