#include "tools/report/sweep_record.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_errors.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "tools/report/charts/units.h"

namespace slackline::report {

namespace {

constexpr const char* kResults = "results.json";

bool is_number(std::string_view json) {
  return !json.empty() && (json.front() == '-' || (json.front() >= '0' && json.front() <= '9'));
}

// A value as people read it: strings without quotes.
std::string value_text(JsonReader& section, const std::string& key) {
  const std::string json = section.json(key);
  return !json.empty() && json.front() == '"' ? section.string(key) : json;
}

void read_columns(JsonReader& section,
                  const std::string& key,
                  const std::string& prefix,
                  SweepRun& run) {
  if (!section.has(key)) {
    return;  // null: not measured
  }
  const std::string name = fmt::format("{}{}", prefix, key);
  const std::string json = section.json(key);
  if (json.front() == '{') {
    JsonReader inner = JsonReader::parse(json, name);
    for (const std::string& inner_key : inner.keys()) {
      read_columns(inner, inner_key, fmt::format("{}.", name), run);
    }
  } else if (is_number(json)) {
    run.numbers[name] = section.number(key);
    run.columns.emplace_back(name, number_text(run.numbers[name]));
  } else {
    run.columns.emplace_back(name, value_text(section, key));
  }
}

void read_settings(JsonReader settings, SweepRun& run) {
  for (const std::string& key : settings.keys()) {
    run.settings.emplace_back(key, settings.has(key) ? value_text(settings, key) : "null");
  }
}

SweepRun read_run_row(JsonReader& row) {
  SweepRun run{.directory = row.string(row.has("run") ? "run" : "directory"),
               .status = row.string("status", ""),
               .message = row.string("message", "")};
  read_settings(row.section(row.has("assignments") ? "assignments" : "settings"), run);
  constexpr std::array<std::string_view, 6> kRead = {
      "run", "directory", "status", "message", "settings", "assignments"};
  for (const std::string& key : row.keys()) {
    if (std::find(kRead.begin(), kRead.end(), key) == kRead.end()) {
      read_columns(row, key, "", run);
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
  const std::string text = read_file(path);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_list = first != std::string::npos && text[first] == '[';
  // A reader takes objects.
  const std::string document = is_list ? fmt::format("{{\"runs\":{}}}", text) : text;
  reading(path, [&] {
    JsonReader results = JsonReader::parse(document, path);
    if (!results.has("runs")) {
      throw ConfigError("has no list of runs");
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
