#include <memory>
#include <string>

#include <fmt/format.h>

#include "core/checkpoint/write_checkpoint.h"
#include "core/file_io.h"
#include "core/log.h"
#include "core/shown_text.h"
#include "core/terminal.h"
#include "data/formats/tokenizer_file.h"
#include "tools/cli/commands.h"
#include "tools/infer/model_loader.h"
#include "tools/interop/hugging_face_config.h"
#include "tools/interop/hugging_face_weights.h"

namespace slackline {

namespace {

struct ImportOptions {
  std::string hf;
  std::string out;
};

// The tokenizer of tokenizer.json, else of vocab.json and merges.txt; null where the directory has
// neither.
std::unique_ptr<Tokenizer> read_tokenizer(const std::string& directory, const ModelConfig& config) {
  std::string file = directory + "/tokenizer.json";
  std::unique_ptr<Tokenizer> tokenizer;
  if (path_exists(file)) {
    tokenizer = load_hugging_face_tokenizer(directory);
  } else if (path_exists(directory + "/vocab.json") || path_exists(directory + "/merges.txt")) {
    file = directory + "/vocab.json";
    tokenizer = load_gpt2_tokenizer(directory);
  } else {
    log_warning(directory +
                ": holds neither tokenizer.json nor vocab.json and merges.txt, so the " +
                "checkpoint gets no tokenizer and generates from token ids");
    return nullptr;
  }
  if (tokenizer->vocabulary_size() > config.vocab) {
    throw FileError(fmt::format("{}: has more tokens than vocab_size {} of config.json; got {}",
                                file,
                                config.vocab,
                                tokenizer->vocabulary_size()));
  }
  return tokenizer;
}

void import_model(const ImportOptions& options) {
  if (path_exists(options.out)) {
    throw FileError(options.out + ": is there already; import makes a new directory");
  }
  const std::string config_path = options.hf + "/config.json";
  const ModelConfig config = read_hugging_face_config(read_file(config_path), config_path);
  const HuggingFaceWeights weights(options.hf);
  const std::unique_ptr<Tokenizer> tokenizer = read_tokenizer(options.hf, config);
  weights.require_model(config);
  Parameters parameters(config, {.gradients = Gradients::none});
  weights.read_into(parameters);

  CheckpointContents contents{.documents = {.model = model_config_json(config)}};
  for (const Parameter& parameter : parameters.all()) {
    contents.tensors.push_back(
        {.name = "weights/" + parameter.spec.name, .data = parameter.weight});
  }
  if (tokenizer != nullptr) {
    contents.documents.tokenizer = fmt::format(R"({{"file": "{}"}})", kTokenizerName);
    contents.files[kTokenizerName] = tokenizer_to_json(*tokenizer);
  }
  write_checkpoint(options.out, contents);
  print_lines(fmt::format("{}: {} parameters\n", shown_line(options.out), num_parameters(config)));
}

}  // namespace

void add_import_command(Command root) {
  auto options = std::make_shared<ImportOptions>();
  Command command =
      root.add_command("import", "Turn a Hugging Face GPT-2 directory into a checkpoint");
  command.option("--hf",
                 &options->hf,
                 "Directory with config.json and model.safetensors",
                 {.required = true, .value_name = "DIR"});
  command.option("--out",
                 &options->out,
                 "Checkpoint directory to make",
                 {.required = true, .value_name = "DIR"});
  command.footer(
      "The checkpoint holds weights alone (step 0), for checkpoint.init_from, evaluate, generate\n"
      "and export. tokenizer.json in the directory, or vocab.json and merges.txt, becomes its\n"
      "tokenizer.\n"
      "Example: slackline import --hf gpt2 --out checkpoints/gpt2");
  command.runs([options] { import_model(*options); });
}

}  // namespace slackline
