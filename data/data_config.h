#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/json_reader.h"

namespace slackline {

struct DataSource {
  std::string path;     // a prefix of Megatron's files, or an llm.c token file
  double weight = 1.0;  // share of the samples, relative to the other sources'
};

// Shares of every file's sequences that are for training, validation and test.
using Split = std::array<double, 3>;

// The "data" section.
struct DataConfig {
  std::vector<DataSource> train{};
  Split split = {0.95, 0.05, 0.0};
  std::vector<DataSource> valid{};  // where given, it replaces `split` and `train` is used whole
};

[[nodiscard]] DataConfig read_data_config(JsonReader section);

}  // namespace slackline
