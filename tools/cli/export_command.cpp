#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/file_io.h"
#include "core/shown_text.h"
#include "core/terminal.h"
#include "core/threads/thread_pool.h"
#include "data/tokenizers/byte_level_tokenizer.h"
#include "tools/cli/commands.h"
#include "tools/infer/model_loader.h"
#include "tools/interop/hugging_face_config.h"
#include "tools/interop/hugging_face_tokenizer.h"
#include "tools/interop/hugging_face_weights.h"

namespace slackline {

namespace {

struct ExportOptions {
  std::string checkpoint;
  std::string out;
  std::string dtype = "fp32";
};

// Tensors in another element type, and the memory they lie in.
struct ConvertedTensors {
  std::vector<Buffer> buffers{};
  std::vector<NamedTensor> tensors{};
};

ConvertedTensors rounded_to_bf16(const std::vector<NamedTensor>& tensors) {
  ConvertedTensors result;
  for (const NamedTensor& source : tensors) {
    const Shape& shape = source.tensor.shape();
    const Buffer& buffer =
        result.buffers.emplace_back(make_buffer(source.name, DType::bf16, shape));
    const Tensor rounded = buffer.view(DType::bf16, shape);
    const std::span<const float> values = source.tensor.span<float>();
    std::transform(values.begin(), values.end(), rounded.data<BFloat16>(), [](float value) {
      return BFloat16(value);
    });
    result.tensors.push_back({.name = source.name, .tensor = rounded});
  }
  return result;
}

// Whatever the tokenizer is: a directory that has another one's files would hold two.
void refuse_occupied(const std::string& directory) {
  for (const char* name : {"config.json",
                           "model.safetensors",
                           "model.safetensors.index.json",
                           "pytorch_model.bin",
                           "pytorch_model.bin.index.json",
                           "generation_config.json",
                           "vocab.json",
                           "merges.txt",
                           "tokenizer.json",
                           "tokenizer.model",
                           "tokenizer_config.json",
                           "added_tokens.json",
                           "special_tokens_map.json",
                           "manifest.json"}) {
    if (path_exists(directory + "/" + name)) {
      throw FileError(directory + ": holds a model, a tokenizer or a checkpoint already (" + name +
                      "); choose another --out, or remove what an export left there");
    }
  }
}

void export_model(const ExportOptions& options) {
  refuse_occupied(options.out);
  const InferenceModel model = load_inference_model(options.checkpoint, default_num_threads());
  const DType dtype = options.dtype == "bf16" ? DType::bf16 : DType::f32;
  HuggingFaceConfigOptions config_options{.dtype = dtype};
  if (model.tokenizer != nullptr) {
    config_options.end_of_text = model.tokenizer->end_of_text();
  }

  ConvertedTensors weights{.tensors = hugging_face_tensors(*model.parameters)};
  if (dtype == DType::bf16) {
    weights = rounded_to_bf16(weights.tensors);
  }
  make_directories(options.out);
  write_safetensors(options.out + "/model.safetensors", weights.tensors, {{"format", "pt"}});
  if (const auto* bpe = dynamic_cast<const ByteLevelTokenizer*>(model.tokenizer.get())) {
    const ByteLevelVocabulary& vocabulary = bpe->vocabulary();
    vocabulary.is_gpt2() ? write_gpt2_tokenizer(options.out, vocabulary)
                         : write_hugging_face_tokenizer(options.out, vocabulary);
  }
  // Last: a directory with a config is whole.
  write_file_atomically(options.out + "/config.json",
                        hugging_face_config_json(model.config, config_options));
  print_lines(fmt::format("{}: {} parameters, {}\n",
                          shown_line(options.out),
                          num_parameters(model.config),
                          options.dtype));
}

}  // namespace

void add_export_command(Command root) {
  auto options = std::make_shared<ExportOptions>();
  Command command =
      root.add_command("export", "Write a checkpoint's model as a Hugging Face GPT-2 directory");
  command.option("--checkpoint",
                 &options->checkpoint,
                 "Checkpoint directory",
                 {.required = true, .value_name = "DIR"});
  command.option(
      "--out", &options->out, "Directory to write to", {.required = true, .value_name = "DIR"});
  command.option("--dtype",
                 &options->dtype,
                 "Of the weights; bf16 rounds to nearest even",
                 {.shows_default = true, .one_of = {"fp32", "bf16"}});
  command.footer(
      "Writes config.json and model.safetensors; also vocab.json and merges.txt where the\n"
      "checkpoint's tokenizer is GPT-2's, tokenizer.json and tokenizer_config.json where it came\n"
      "from another tokenizer.json.\n"
      "Example: slackline export --checkpoint runs/first/checkpoints/step-00000200 --out exported");
  command.runs([options] { export_model(*options); });
}

}  // namespace slackline
