#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/data_members.h"
#include "tools/config/train_config.h"

namespace slackline {

// How a run uses one training data set.
struct DataTableRow {
  std::string path{};         // as the config names it
  std::uint64_t tokens = 0;   // of its training part
  double share = 0.0;         // of the run's samples, by weight
  std::uint64_t samples = 0;  // that the whole run reads of it
  double epochs = 0.0;        // how often each of its tokens is an input then
};

// A row for each training data set of a run from step 1 to run.steps, in the config's order.
// REQUIRES: `train` was opened for this config, and each has at least a sample.
[[nodiscard]] std::vector<DataTableRow> data_table(const TrainConfig& config,
                                                   std::span<const DataMember> train);

// The table for a reader, with a heading, and the rows' warnings: one for each data set of more
// epochs than repeated text is worth.
[[nodiscard]] std::string data_table_text(const std::vector<DataTableRow>& rows);
[[nodiscard]] std::vector<std::string> data_table_warnings(const std::vector<DataTableRow>& rows);

// The list of rows as JSON, and data.json, which holds it; read_data_table reads that file back
// and throws ConfigError where it is another one.
[[nodiscard]] std::string data_rows_json(const std::vector<DataTableRow>& rows);
[[nodiscard]] std::string data_table_json(const std::vector<DataTableRow>& rows);
[[nodiscard]] std::vector<DataTableRow> read_data_table(const std::string& path);

}  // namespace slackline
