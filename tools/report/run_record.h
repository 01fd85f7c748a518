#pragma once

#include <string>
#include <vector>

#include "parallel/predict/timeline/chrome_trace.h"
#include "tools/config/train_config.h"
#include "tools/plan/step_plan.h"
#include "tools/record/metrics_file.h"
#include "tools/run/data_table.h"

namespace slackline::report {

// What a run left in its directory, read back.
struct RunRecord {
  std::string directory{};  // as the user named it
  TrainConfig config{};
  std::vector<DataTableRow> data{};  // of data.json; empty where the run wrote none
  Metrics metrics{};
  // The plan in force, with the timeline that config and costs.json predict.
  StepPlan plan{};
  std::string no_prediction{};              // why there is no timeline; empty where there is one
  std::vector<schedule::TraceBar> trace{};  // empty where the run wrote none
};

// Whether the directory is one of a run: it has a config.resolved.json.
[[nodiscard]] bool is_run_directory(const std::string& directory);

// Throws FileError where a file of the run is missing or corrupt; data.json, costs.json and
// trace.json need not be there.
[[nodiscard]] RunRecord read_run(const std::string& directory);

}  // namespace slackline::report
