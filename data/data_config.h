#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/json_reader.h"

namespace slackline {

struct DataSource {
  std::string path;  // a prefix of Megatron's files, or an llm.c token file
  // Share of the samples, relative to the other sources'. A list has weights for all of its sources
  // or for none; without them each counts by the samples that an epoch of it has.
  std::optional<double> weight{};
};

// Shares of every file's sequences that are for training, validation and test.
using Split = std::array<double, 3>;

inline constexpr Split kWholeFiles = {1.0, 0.0, 0.0};
inline constexpr Split kSplitForEvaluation = {0.95, 0.05, 0.0};

// The "data" section.
struct DataConfig {
  std::vector<DataSource> train{};
  // In force: where `valid` is given, `train` is used whole, but by a run that goes on from a
  // checkpoint with a split.
  Split split = kWholeFiles;
  std::optional<Split> given_split{};  // absent: a run that goes on keeps its checkpoint's
  std::vector<DataSource> valid{};
};

// `default_split` holds where neither a split nor `valid` is given.
[[nodiscard]] DataConfig read_data_config(JsonReader section, const Split& default_split);

}  // namespace slackline
