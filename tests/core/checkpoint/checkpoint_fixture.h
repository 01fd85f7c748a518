#pragma once

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "core/checkpoint/contents.h"
#include "core/error.h"
#include "core/file_io.h"
#include "tests/support/temporary_directory.h"

namespace slackline {

// Weights and moments of a small model, and their checkpoint's contents (views of them).
struct SmallState {
  std::vector<float> table = std::vector<float>(60);  // (12, 5)
  std::vector<float> bias = std::vector<float>(7);
  std::vector<float> moment = std::vector<float>(7);

  explicit SmallState(float first = 0.5F) {
    std::iota(table.begin(), table.end(), first);
    std::iota(bias.begin(), bias.end(), -first);
    std::iota(moment.begin(), moment.end(), 100.0F);
  }

  CheckpointContents contents(std::int64_t step) {
    return {.step = step,
            .documents = {.model = R"({"layers":2,"hidden":64})",
                          .data = R"({"consumed_sequences":320,"epochs":[1]})"},
            .tensors = {{"weights/wte.weight", Tensor(table.data(), DType::f32, {12, 5})},
                        {"weights/ln_f.bias", Tensor(bias.data(), DType::f32, {7})},
                        {"adam_m/ln_f.bias", Tensor(moment.data(), DType::f32, {7})}},
            .files = {{"tokenizer.json", "{\"type\": \"byte\"}\n"}}};
  }
};

inline void flip_bit(const std::string& path, std::size_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ 4));
}

inline std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace slackline
