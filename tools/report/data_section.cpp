#include <string>
#include <vector>

#include <fmt/format.h>

#include "tools/report/charts/units.h"
#include "tools/report/sections.h"

namespace slackline::report {

Html data_section(const RunRecord& run) {
  if (run.data.empty()) {
    return {};
  }
  std::vector<std::vector<std::string>> rows;
  rows.reserve(run.data.size());
  for (const DataTableRow& row : run.data) {
    rows.push_back({row.path,
                    std::to_string(row.tokens),
                    percent_text(row.share),
                    std::to_string(row.samples),
                    fmt::format("{:.3f}", row.epochs)});
  }
  Html all = text_element("h3", "Training data");
  all += table({{"data set"},
                {"tokens", Align::right},
                {"share", Align::right},
                {"samples of the whole run", Align::right},
                {"epochs", Align::right}},
               rows);
  for (const std::string& warning : data_table_warnings(run.data)) {
    all += notice(warning);
  }
  return all;
}

}  // namespace slackline::report
