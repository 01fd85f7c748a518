#include "tools/interop/hugging_face_weights.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/checkpoint/manifest.h"
#include "core/error.h"
#include "core/file_io.h"
#include "core/shown_text.h"
#include "core/strict_json.h"

namespace slackline {

namespace {

constexpr std::string_view kPrefix = "transformer.";
constexpr std::string_view kHead = "lm_head.weight";
constexpr const char* kWeightsName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

// h.{i}.attn.bias and h.{i}.attn.masked_bias hold the causal mask, not a bias of a layer.
bool is_mask_buffer(std::string_view name) {
  return name.starts_with("h.") &&
         (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

// The files of a set of shards, from {"weight_map": {tensor: file}}.
std::set<std::string> files_of_index(const std::string& path) {
  std::set<std::string> names;
  try {
    const nlohmann::ordered_json index = parse_strict_json(read_file(path));
    for (const auto& [tensor, file] : index.at("weight_map").items()) {
      names.insert(file.get<std::string>());
    }
  } catch (const FileError&) {
    throw;
  } catch (const std::exception& error) {
    throw FileError(fmt::format("{}: is no index of weights: {}", path, error.what()));
  }
  for (const std::string& name : names) {
    if (!is_file_name(name)) {
      throw FileError(fmt::format(
          "{}: a shard must be a file beside the index; got {}", path, shown_value(name)));
    }
  }
  return names;
}

std::vector<std::string> weight_files(const std::string& directory) {
  if (path_exists(directory + "/" + kWeightsName)) {
    return {directory + "/" + kWeightsName};
  }
  if (!path_exists(directory + "/" + kIndexName)) {
    throw FileError(with_hint(
        fmt::format("{}: holds neither {} nor {}", directory, kWeightsName, kIndexName),
        "other formats (pytorch_model.bin) become safetensors by loading and saving the model with "
        "the transformers library"));
  }
  std::vector<std::string> paths;
  for (const std::string& name : files_of_index(directory + "/" + kIndexName)) {
    paths.push_back(fmt::format("{}/{}", directory, name));
  }
  return paths;
}

// Exact: every half is a float.
float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16U;
  const std::uint32_t exponent = (half >> 10U) & 0x1fU;
  const std::uint32_t fraction = half & 0x3ffU;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  // Biases are 15 and 127; the largest exponent means infinity or NaN in both.
  const std::uint32_t wide = exponent == 0x1fU ? 0xffU : exponent + 112U;
  return std::bit_cast<float>(sign | (wide << 23U) | (fraction << 13U));
}

template <typename Convert>
void convert(std::span<const std::byte> from, std::span<float> to, const Convert& convert_bits) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::uint16_t bits = 0;  // the file's data need not be aligned
    std::memcpy(&bits, from.data() + i * sizeof bits, sizeof bits);
    to[i] = convert_bits(bits);
  }
}

}  // namespace

HuggingFaceWeights::HuggingFaceWeights(const std::string& directory) : directory_(directory) {
  for (const std::string& path : weight_files(directory)) {
    add_file(path);
  }
}

void HuggingFaceWeights::add_file(const std::string& path) {
  const SafetensorsFile& file = files_.emplace_back(path);
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    const std::string_view spelled = entry.name;
    const std::string name(spelled.starts_with(kPrefix) ? spelled.substr(kPrefix.size()) : spelled);
    if (is_mask_buffer(name)) {
      continue;
    }
    const auto [found, added] = sources_.insert({name, {.file = file, .entry = entry}});
    if (!added) {
      throw FileError(fmt::format("{}: tensor {} stands in {} as well, as {}",
                                  path,
                                  shown_value(entry.name),
                                  found->second.file.path(),
                                  shown_value(found->second.entry.name)));
    }
  }
}

void HuggingFaceWeights::require_model(const ModelConfig& config) const {
  const std::vector<ParameterSpec> table = parameter_table(config);
  refuse_unknown(table);
  for (const ParameterSpec& spec : table) {
    static_cast<void>(find(spec.name, spec.shape));
  }
}

void HuggingFaceWeights::read_into(Parameters& parameters) const {
  for (const Parameter& parameter : parameters.all()) {
    read(parameter.spec.name, parameter.weight);
  }
  const bool tied = parameters.all().back().spec.role != ParameterRole::head;
  if (tied) {
    check_tied_head(parameters.at("wte.weight").weight);
  }
}

void HuggingFaceWeights::refuse_unknown(const std::vector<ParameterSpec>& table) const {
  std::set<std::string_view> known = {kHead};
  for (const ParameterSpec& spec : table) {
    known.insert(spec.name);
  }
  for (const auto& [name, source] : sources_) {
    if (known.count(name) == 0) {
      throw FileError(
          fmt::format("{}: tensor {} is not part of the GPT-2 that config.json describes",
                      source.file.path(),
                      shown_value(source.entry.name)));
    }
  }
}

const HuggingFaceWeights::Source& HuggingFaceWeights::find(const std::string& name,
                                                           const Shape& shape) const {
  const auto found = sources_.find(name);
  if (found == sources_.end()) {
    throw FileError(fmt::format("{}: no file holds tensor {} (with or without \"{}\" before it)",
                                directory_,
                                name,
                                kPrefix));
  }
  const auto& [file, entry] = found->second;
  if (entry.shape != shape) {
    throw FileError(fmt::format("{}: tensor {} must have shape {} by config.json; got {}",
                                file.path(),
                                shown_value(entry.name),
                                shape.to_string(),
                                entry.shape.to_string()));
  }
  return found->second;
}

void HuggingFaceWeights::read(const std::string& name, const Tensor& destination) const {
  const auto& [file, entry] = find(name, destination.shape());
  const std::span<const std::byte> bytes = file.bytes(entry);
  const std::span<float> values = destination.span<float>();
  if (entry.dtype == DType::f32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else if (entry.dtype == DType::f16) {
    convert(bytes, values, float_of_half);
  } else if (entry.dtype == DType::bf16) {
    convert(bytes, values, [](std::uint16_t bits) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
    });
  } else {
    throw FileError(fmt::format("{}: tensor {} must be of type f32, f16 or bf16; got {}",
                                file.path(),
                                shown_value(entry.name),
                                name_of(entry.dtype)));
  }
}

void HuggingFaceWeights::check_tied_head(const Tensor& token_table) const {
  const auto head = sources_.find(std::string(kHead));
  if (head == sources_.end()) {
    return;
  }
  const Buffer copy = make_buffer("output head", DType::f32, token_table.shape());
  const Tensor values = copy.view(DType::f32, token_table.shape());
  read(std::string(kHead), values);
  if (std::memcmp(values.raw(), token_table.raw(), values.bytes()) != 0) {
    throw FileError(with_hint(
        fmt::format("{}: {} must equal wte.weight, since tie_word_embeddings is true",
                    head->second.file.path(),
                    kHead),
        "if the model was trained with a head of its own, set tie_word_embeddings to false in "
        "config.json"));
  }
}

std::vector<NamedTensor> hugging_face_tensors(const Parameters& parameters) {
  std::vector<NamedTensor> tensors;
  for (const Parameter& parameter : parameters.all()) {
    const bool head = parameter.spec.role == ParameterRole::head;
    tensors.push_back({.name = (head ? "" : std::string(kPrefix)) + parameter.spec.name,
                       .tensor = parameter.weight});
  }
  return tensors;
}

}  // namespace slackline
