#include "tools/run/data_table.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "core/joined_text.h"
#include "core/json_reader.h"
#include "core/json_string.h"
#include "core/shown_text.h"
#include "data/blend.h"

namespace slackline {

namespace {

// Up to four epochs repeated text teaches about as much as new text, then less and less
// (Muennighoff et al. 2023, "Scaling Data-Constrained Language Models").
constexpr double kEpochsOfUse = 4.0;

std::vector<double> shares_of(std::span<const DataMember> members) {
  std::vector<double> weights;
  std::ranges::transform(members, std::back_inserter(weights), &DataMember::weight);
  return normalized_weights(weights);
}

}  // namespace

std::vector<DataTableRow> data_table(const TrainConfig& config, std::span<const DataMember> train) {
  const std::vector<double> shares = shares_of(train);
  const auto samples = static_cast<std::uint64_t>(config.run.steps * config.batch.global);
  const std::vector<std::uint64_t> taken = Blend::counts(shares, samples);
  std::vector<DataTableRow> rows;
  rows.reserve(train.size());
  for (std::size_t m = 0; m < train.size(); ++m) {
    const std::uint64_t tokens = tokens_of(train[m]);
    const auto inputs = static_cast<double>(taken[m]) * config.model.sequence;
    rows.push_back({.path = config.data.train[m].path,
                    .tokens = tokens,
                    .share = shares[m],
                    .samples = taken[m],
                    .epochs = inputs / static_cast<double>(tokens)});
  }
  return rows;
}

std::string data_table_text(const std::vector<DataTableRow>& rows) {
  constexpr std::string_view kHeading = "data set";
  std::size_t width = kHeading.size();
  for (const DataTableRow& row : rows) {
    width = std::max(width, shown_line(row.path).size());
  }
  std::string text = fmt::format("{:<{}} {:>15} {:>9} {:>13} {:>9}\n",
                                 kHeading,
                                 width,
                                 "tokens",
                                 "share",
                                 "samples",
                                 "epochs");
  for (const DataTableRow& row : rows) {
    text += fmt::format("{:<{}} {:>15} {:>7.2f} % {:>13} {:>9.3f}\n",
                        shown_line(row.path),
                        width,
                        row.tokens,
                        100.0 * row.share,
                        row.samples,
                        row.epochs);
  }
  return text;
}

std::vector<std::string> data_table_warnings(const std::vector<DataTableRow>& rows) {
  std::vector<std::string> warnings;
  for (std::size_t m = 0; m < rows.size(); ++m) {
    if (rows[m].epochs > kEpochsOfUse) {
      warnings.push_back(
          fmt::format("data.train.{}: the run reads this data set {:.1f} times, and after {:.0f} "
                      "repeated text teaches less and less; a lower weight, fewer steps or more "
                      "text would help; it is {}",
                      m,
                      rows[m].epochs,
                      kEpochsOfUse,
                      rows[m].path));
    }
  }
  return warnings;
}

std::string data_rows_json(const std::vector<DataTableRow>& rows) {
  const std::string lines = joined_of(rows, ",\n ", [](const DataTableRow& row) {
    return fmt::format(R"({{"path": {}, "tokens": {}, "share": {}, "samples": {}, "epochs": {}}})",
                       json_string(row.path),
                       row.tokens,
                       row.share,
                       row.samples,
                       row.epochs);
  });
  return fmt::format("[{}]", lines);
}

std::string data_table_json(const std::vector<DataTableRow>& rows) {
  return fmt::format("{{\"train\":\n{}}}\n", data_rows_json(rows));
}

std::vector<DataTableRow> read_data_table(const std::string& path) {
  JsonReader document = JsonReader::parse_file(path);
  std::vector<DataTableRow> rows;
  for (JsonReader& row : document.sections("train")) {
    rows.push_back({.path = row.string("path"),
                    .tokens = static_cast<std::uint64_t>(row.integer("tokens", {.min = 1})),
                    .share = row.number("share", {.min = 0.0, .max = 1.0}),
                    .samples = static_cast<std::uint64_t>(row.integer("samples", {.min = 0})),
                    .epochs = row.number("epochs", {.min = 0.0})});
  }
  return rows;
}

}  // namespace slackline
