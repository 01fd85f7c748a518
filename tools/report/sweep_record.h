#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/record/metrics_file.h"

namespace slackline::report {

// One run of a sweep, as its results.json says.
struct SweepRun {
  std::string directory{};  // below the sweep's
  std::string status{};
  std::string message{};
  std::vector<std::pair<std::string, std::string>> settings{};  // dotted key and value, as text
  // Everything else, objects flattened with dots (axes.data.sent_bytes); null is left out.
  std::vector<std::pair<std::string, std::string>> columns{};
  std::map<std::string, double> numbers{};  // of the columns

  // Its metrics.jsonl, where there is one that can be read; of runs behind the first kMostCurves
  // that have steps `cut` alone.
  Metrics metrics{};
};

struct SweepRecord {
  static constexpr std::size_t kMostCurves = 8;

  std::string directory{};
  std::vector<SweepRun> runs{};
  std::size_t runs_with_steps = 0;
};

// Whether the directory is one of a sweep: it has a results.json.
[[nodiscard]] bool is_sweep_directory(const std::string& directory);

// Reads results.json: a list of runs. A run has a `run`, which is its directory, a `status`, a
// `message`, `settings` {dotted key: value}, and any columns besides. Throws FileError where it is
// missing or corrupt.
[[nodiscard]] SweepRecord read_sweep_results(const std::string& directory);

}  // namespace slackline::report
