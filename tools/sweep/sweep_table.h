#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/record/run_summary.h"
#include "tools/sweep/sweep_grid.h"
#include "tools/sweep/sweep_run.h"

namespace slackline {

// One run of a sweep, as a row of its results.
struct SweepRow {
  std::string run{};  // name of its directory
  SweepSettings settings{};
  std::optional<RunOutcome> outcome{};  // absent: it has not ended yet
  RunSummary summary{};
  bool is_turned_down = false;  // it ended well, by its own account, and its record says otherwise

  // "pending", "done" or "failed".
  [[nodiscard]] std::string_view status() const;
};

// One line of names, one line a row. A column for each of `keys`, empty where a row does not set
// it: text as it is, other values as JSON. Fields with commas, quotes or line breaks are quoted as
// RFC 4180 says; lines end with a newline alone. Pure.
[[nodiscard]] std::string results_csv(const std::vector<std::string>& keys,
                                      const std::vector<SweepRow>& rows);

// The same as a list of objects; null for what is absent. Bytes that are no UTF-8 are replaced.
[[nodiscard]] std::string results_json(const std::vector<SweepRow>& rows);

}  // namespace slackline
