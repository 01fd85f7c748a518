#include "tools/report/sweep_record.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_errors.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "tools/report/charts/units.h"

namespace slackline::report {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kResults = "results.json";

// A value as people read it: strings without quotes.
std::string value_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// A null was not measured.
void add_columns(const std::string& name, const Json& value, SweepRun& run) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      add_columns(fmt::format("{}.{}", name, key), inner, run);
    }
  } else if (value.is_number()) {
    run.numbers[name] = value.get<double>();
    run.columns.emplace_back(name, number_text(run.numbers[name]));
  } else if (!value.is_null()) {
    run.columns.emplace_back(name, value_text(value));
  }
}

SweepRun read_run_row(JsonReader& row) {
  SweepRun run{.directory = row.string("run"),
               .status = row.string("status", ""),
               .message = row.string("message", "")};
  JsonReader settings = row.section("settings");
  for (const std::string& key : settings.keys()) {
    run.settings.emplace_back(key, settings.has(key) ? value_text(settings.given(key)) : "null");
  }
  constexpr std::array<std::string_view, 4> kRead = {"run", "status", "message", "settings"};
  for (const std::string& key : row.keys()) {
    if (row.has(key) && std::ranges::find(kRead, key) == kRead.end()) {
      add_columns(key, row.given(key), run);
    }
  }
  return run;
}

// A results.json says where its runs are; only what lies below the sweep is looked at.
bool is_below(const std::string& directory) {
  const std::filesystem::path path(directory);
  return !directory.empty() && path.is_relative() &&
         std::find(path.begin(), path.end(), std::filesystem::path("..")) == path.end();
}

void read_metrics_of(const std::string& sweep, SweepRun& run) {
  const std::string path = fmt::format("{}/{}/metrics.jsonl", sweep, run.directory);
  try {
    if (is_below(run.directory) && path_exists(path)) {
      run.metrics = read_metrics(path);
    }
  } catch (const FileError& error) {
    run.message += fmt::format("{}{}", run.message.empty() ? "" : "; ", error.what());
  }
}

}  // namespace

bool is_sweep_directory(const std::string& directory) {
  return path_exists(fmt::format("{}/{}", directory, kResults));
}

SweepRecord read_sweep_results(const std::string& directory) {
  SweepRecord sweep{.directory = directory};
  const std::string path = fmt::format("{}/{}", directory, kResults);
  // A reader takes objects.
  const std::string document = fmt::format("{{\"runs\":{}}}", read_file(path));
  reading(path, [&] {
    JsonReader results = JsonReader::parse(document, path);
    if (!results.has("runs")) {
      results.fail("runs", "must be a list of runs");
    }
    for (JsonReader& row : results.sections("runs")) {
      sweep.runs.push_back(read_run_row(row));
    }
  });
  for (SweepRun& run : sweep.runs) {
    read_metrics_of(directory, run);
    if (run.metrics.steps.empty()) {
      continue;
    }
    if (++sweep.runs_with_steps > SweepRecord::kMostCurves) {
      run.metrics = {.cut = run.metrics.cut};
    }
  }
  return sweep;
}

}  // namespace slackline::report
