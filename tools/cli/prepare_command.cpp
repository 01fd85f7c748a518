#include <memory>
#include <optional>

#include <fmt/format.h>

#include "core/shown_text.h"
#include "core/terminal.h"
#include "data/prepare.h"
#include "tools/cli/commands.h"
#include "tools/record/progress_line.h"

namespace slackline {

namespace {

struct PrepareArguments : PrepareOptions {
  bool recognizes_special_tokens = false;
};

void prepare_with_progress(const PrepareOptions& options) {
  std::optional<ProgressLine> line;
  const PrepareSummary summary = prepare(options, [&](std::uint64_t done, std::uint64_t total) {
    if (!line) {
      line.emplace("preparing", total);
    }
    line->update(done);
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

void add_prepare_command(Command root) {
  auto options = std::make_shared<PrepareArguments>();
  Command command =
      root.add_command("prepare", "Turn text into a data set of tokens (Megatron's .bin and .idx)");
  command.option("--input",
                 &options->inputs,
                 "UTF-8 text files, and files of JSON lines with a \"text\" key (*.jsonl)",
                 {.required = true, .value_name = "FILE"});
  command.option("--tokenizer",
                 &options->tokenizer,
                 "byte, sentencepiece:MODEL, gpt2:DIR or hf:DIR",
                 {.required = true});
  command.option("--out",
                 &options->out,
                 "Prefix of the files to write",
                 {.required = true, .value_name = "PREFIX"});
  command.option("--train-sentencepiece",
                 &options->train_sentencepiece,
                 "Train a SentencePiece model of so many pieces on the input first",
                 {.limit = Limit::positive, .value_name = "VOCAB"});
  command.flag("--special-tokens",
               &options->recognizes_special_tokens,
               "Special tokens in the text are tokens (gpt2 and hf); without it they are text");
  command.footer(
      "Example: slackline prepare --input english.txt --tokenizer byte --out corpus/english");
  command.runs([options] {
    if (options->recognizes_special_tokens) {
      options->special_tokens = SpecialTokens::recognized;
    }
    prepare_with_progress(*options);
  });
}

}  // namespace slackline
