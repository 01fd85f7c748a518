#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/tensor/dtype.h"
#include "model/model_config.h"

namespace slackline {

// Reads the text of a GPT-2 config.json as the transformers library writes it. `source` is the
// file's path. Keys that describe other things than the model's function are passed over. Throws
// FileError naming the key for a setting under which the model computes something else than ours.
[[nodiscard]] ModelConfig read_hugging_face_config(std::string_view text,
                                                   const std::string& source);

struct HuggingFaceConfigOptions {
  DType dtype = DType::f32;                   // of the weights beside it: f32 or bf16
  std::optional<std::int64_t> end_of_text{};  // the tokenizer's, where there is one
};

// The config.json under which the library computes what `config` says.
[[nodiscard]] std::string hugging_face_config_json(const ModelConfig& config,
                                                   const HuggingFaceConfigOptions& options);

}  // namespace slackline
