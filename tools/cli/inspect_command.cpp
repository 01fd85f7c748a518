#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/checkpoint/logical_hash.h"
#include "core/hash.h"
#include "core/shown_text.h"
#include "core/strict_json.h"
#include "core/terminal.h"
#include "tools/cli/commands.h"
#include "tools/infer/model_loader.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string checkpoint;
  bool sha256 = false;
  bool json = false;
};

// "weights" of "weights/h.0.ln_1.bias"
std::string group_of(const std::string& name) {
  return name.substr(0, name.find('/'));
}

// Elements and bytes of all that is stored: what differs from worker to worker counts for each.
struct GroupSize {
  std::size_t tensors = 0;
  std::size_t elements = 0;
  std::size_t bytes = 0;
};

std::map<std::string, GroupSize> group_sizes(const Checkpoint& checkpoint) {
  std::map<std::string, GroupSize> groups;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    GroupSize& group = groups[group_of(name)];
    ++group.tensors;
    for (const ManifestPiece& piece : tensor.pieces) {
      const std::size_t elements = piece.region.shape.num_elements();
      group.elements += elements;
      group.bytes += elements * size_of(tensor.dtype);
    }
  }
  return groups;
}

Json document(const std::string& text) {
  return text.empty() ? Json() : parse_strict_json(text);
}

Json describe(const Checkpoint& checkpoint) {
  Json tensors = Json::object();
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    tensors[name] = {{"shape", tensor.shape.dims()}, {"dtype", name_of(tensor.dtype)}};
  }
  Json files = Json::object();
  for (const auto& [name, file] : checkpoint.files()) {
    files[name] = {{"bytes", file.bytes}, {"xxh3", hex_text(file.xxh3)}};
  }
  const CheckpointDocuments& documents = checkpoint.documents();
  return {{"path", checkpoint.path()},
          {"step", checkpoint.step()},
          {"model", document(documents.model)},
          {"data", document(documents.data)},
          {"tokenizer", document(documents.tokenizer)},
          {"tensors", std::move(tensors)},
          {"files", std::move(files)}};
}

void print_text(const Checkpoint& checkpoint) {
  const CheckpointDocuments& documents = checkpoint.documents();
  std::string text;
  const auto add = [&]<typename... Values>(fmt::format_string<Values...> format,
                                           Values&&... values) {
    text += fmt::format(format, std::forward<Values>(values)...);
  };
  add("step       {}\n", checkpoint.step());
  add("model      {}\n", document(documents.model).dump());
  add("data       {}\n", document(documents.data).dump());
  add("tokenizer  {}\n", checkpoint.has_file(kTokenizerName) ? kTokenizerName : "none");
  add("\n{:<24} {:>8} {:>14} {:>14}\n", "group", "tensors", "elements", "bytes");
  for (const auto& [name, group] : group_sizes(checkpoint)) {
    add("{:<24} {:>8} {:>14} {:>14}\n",
        shown_value(name),
        group.tensors,
        group.elements,
        group.bytes);
  }
  add("\n{:<40} {:>6} {}\n", "tensor", "dtype", "shape");
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    add("{:<40} {:>6} {}\n", shown_value(name), name_of(tensor.dtype), tensor.shape.to_string());
  }
  add("\n{:<32} {:>14}  xxh3, verified\n", "file", "bytes");
  for (const auto& [name, file] : checkpoint.files()) {
    add("{:<32} {:>14}  {}\n", shown_value(name), file.bytes, hex_text(file.xxh3));
  }
  print_lines(text);
}

void inspect(const InspectOptions& options) {
  Checkpoint checkpoint = open_checkpoint(options.checkpoint);
  if (options.json) {
    Json description = describe(checkpoint);
    if (options.sha256) {
      description["sha256"] = logical_weights_sha256(checkpoint);
    }
    print_json(description.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else if (options.sha256) {
    print_lines(logical_weights_sha256(checkpoint) + "\n");
  } else {
    print_text(checkpoint);
  }
}

}  // namespace

void add_inspect_command(Command root) {
  auto options = std::make_shared<InspectOptions>();
  Command command = root.add_command("inspect", "Verify a checkpoint and print what it holds");
  command.option("CHECKPOINT", &options->checkpoint, "Checkpoint directory", {.required = true});
  command.flag("--sha256",
               &options->sha256,
               "Print one SHA-256 over the fp32 weights, the same for every layout, instead");
  command.flag("--json", &options->json, "Print JSON (with --sha256: the hash in it as well)");
  command.footer(
      "Reads every file and compares it with the checksum in the manifest.\n"
      "Example: slackline inspect runs/first/checkpoints/step-00000200 --sha256");
  command.runs([options] { inspect(*options); });
}

}  // namespace slackline
