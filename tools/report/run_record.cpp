#include "tools/report/run_record.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_errors.h"
#include "core/file_io.h"
#include "tools/config/config_job.h"
#include "tools/plan/compression_plans.h"
#include "tools/plan/cost_file.h"
#include "tools/plan/sum_codecs.h"

namespace slackline::report {

namespace {

constexpr const char* kConfig = "config.resolved.json";

TrainConfig read_config(const std::string& path) {
  const std::string text = read_file(path);
  return reading(path, [&] { return read_train_config(JsonReader::parse(text, path)); });
}

// What a run compressed is what its plan.json says, whatever policy or guard decided it.
PlanHistory read_plans(const TrainConfig& config, const std::string& path) {
  static_cast<void>(read_file(path));  // a missing one is told as such
  TrainConfig replayed = config;
  replayed.compress.policy = CompressionPolicy::replay;
  replayed.compress.plan = path;
  replayed.compress.warmup_steps = 0;  // they are in the plan
  return reading(path, [&] { return compression_plans(plan_job(replayed)); });
}

// A rehearsal obeys the costs it was given; another run is predicted from what it measured.
std::string costs_of(const RunRecord& run) {
  const std::string path = fmt::format("{}/costs.json", run.directory);
  if (!path_exists(path)) {
    return "";
  }
  static_cast<void>(reading(path, [&] { return read_cost_file(path); }));
  return run.config.device == Device::rehearsal ? "" : path;
}

void predict(RunRecord& run) {
  const std::string path = fmt::format("{}/plan.json", run.directory);
  if (run.config.compress.policy == CompressionPolicy::replay) {  // whose file may be gone
    CompressConfig replayed = run.config.compress;
    replayed.plan = path;
    run.config.parallel.codes_sums = run.config.network.collectives != CollectivesWish::direct &&
                                     codes_sums_by_levels(replayed, run.config.model.hidden);
  }
  const PlanHistory plans = read_plans(run.config, path);
  const std::string costs = costs_of(run);
  try {
    run.plan = read_step_plan(plan_job(run.config), {.costs = costs}, {}, plans);
  } catch (const Error& error) {
    // Files of the config's (links, costs of a rehearsal) may lie where only the run found them.
    run.no_prediction = error.what();
    run.plan = make_step_plan(plan_job(run.config), std::nullopt, {}, plans);
  }
}

}  // namespace

bool is_run_directory(const std::string& directory) {
  return path_exists(fmt::format("{}/{}", directory, kConfig));
}

RunRecord read_run(const std::string& directory) {
  RunRecord run{.directory = directory};
  run.config = read_config(fmt::format("{}/{}", directory, kConfig));
  run.metrics = read_metrics(fmt::format("{}/metrics.jsonl", directory));
  if (const std::string data = fmt::format("{}/data.json", directory); path_exists(data)) {
    run.data = reading(data, [&] { return read_data_table(data); });
  }
  predict(run);
  if (const std::string trace = fmt::format("{}/trace.json", directory); path_exists(trace)) {
    run.trace = schedule::read_trace(trace);
  }
  return run;
}

}  // namespace slackline::report
