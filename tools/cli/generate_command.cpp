#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/terminal.h"
#include "model/generate/decoder.h"
#include "model/generate/sampling.h"
#include "tools/cli/commands.h"
#include "tools/cli/inference_options.h"
#include "tools/infer/text_stream.h"
#include "tools/infer/text_tokens.h"

namespace slackline {

namespace {

struct GenerateOptions : InferenceOptions {
  std::string prompt;
  int tokens = 0;
  SamplingOptions sampling;
};

// An empty prompt begins a document: after an end-of-text.
std::vector<TokenId> read_prompt(const InferenceModel& model, const std::string& prompt) {
  std::vector<TokenId> ids = tokens_of_text(model, prompt, "--prompt");
  if (ids.empty() && model.tokenizer == nullptr) {
    throw ConfigError(
        "--prompt: the checkpoint has no tokenizer, so one token id at least is needed");
  }
  if (ids.empty()) {
    ids.push_back(model.tokenizer->end_of_text());
  }
  return ids;
}

void generate(const GenerateOptions& options) {
  const Workers workers = make_workers(options);
  const InferenceModel model = open_model(options, workers);
  const std::vector<TokenId> prompt = read_prompt(model, options.prompt);
  TextStream text(model.tokenizer.get());
  print_generated(text.add(prompt));

  Stream stream(workers, Decoder::workspace_bytes(model.config, workers));
  Decoder decoder(*model.parameters,
                  model.config,
                  options.compression == "on" ? model.activation_codecs.get() : nullptr);
  decoder.start(stream, prompt);
  for (int made = 0; made < options.tokens; ++made) {
    const std::uint64_t position = prompt.size() + static_cast<std::uint64_t>(made);
    const TokenId token = sample_token(decoder.logits(), options.sampling, position);
    if (model.tokenizer != nullptr && token == model.tokenizer->end_of_text()) {
      break;
    }
    print_generated(text.add({&token, 1}));
    if (made + 1 < options.tokens) {
      decoder.append(stream, token);
    }
  }
  print_generated(text.finish() + "\n");
}

void add_sampling_options(Command command, SamplingOptions& sampling) {
  command.option(
      "--seed", &sampling.seed, "The same seed gives the same text", {.shows_default = true});
  command.option("--temperature",
                 &sampling.temperature,
                 "Divides the logits; 0 takes the most likely token each time",
                 {.shows_default = true, .limit = Limit::not_negative, .most = 1e6});
  command.option("--top-k",
                 &sampling.top_k,
                 "Sample from the K most likely tokens alone; 0: from all",
                 {.shows_default = true, .limit = Limit::not_negative});
}

}  // namespace

void add_generate_command(Command root) {
  auto options = std::make_shared<GenerateOptions>();
  Command command = root.add_command("generate", "Continue a text with a checkpoint's model");
  command.option("--checkpoint", &options->checkpoint, "Checkpoint directory", {.required = true});
  command.option("--prompt",
                 &options->prompt,
                 "Text to continue; empty: begin a document",
                 {.required = true});
  command.option("--tokens",
                 &options->tokens,
                 "Tokens to add; fewer where the text ends",
                 {.required = true, .limit = Limit::positive});
  add_sampling_options(command, options->sampling);
  add_compression_option(command, *options, "off unless given");
  add_device_option(command, *options);
  command.footer(
      "Prints the prompt and what follows it, token by token, and stops early at an end-of-text.\n"
      "For a checkpoint without a tokenizer the prompt is token ids separated by spaces, and so "
      "is\n"
      "what is printed. Computes in fp32. Text may be longer than the model's context: when that "
      "is\n"
      "full, its newest half is kept. With --compression on a prompt passes as one message and "
      "each\n"
      "token after it as one of its own.\n"
      "Example: slackline generate --checkpoint runs/first/checkpoints/step-00000200 "
      "--prompt \"The \" --tokens 100 --seed 1 --temperature 0.8 --top-k 50");
  command.runs([options] { generate(*options); });
}

}  // namespace slackline
