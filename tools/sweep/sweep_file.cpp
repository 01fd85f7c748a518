#include "tools/sweep/sweep_file.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_errors.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/json_string.h"
#include "tools/config/config_job.h"
#include "tools/plan/compression_plans.h"
#include "tools/sweep/child_process.h"

namespace slackline {

namespace {

struct BaseConfig {
  std::string text;
  std::string source;  // for messages
};

BaseConfig read_base(JsonReader& document) {
  const std::string base = document.json("base");
  if (base.starts_with('{')) {
    return {base, "base"};
  }
  if (!base.starts_with('"')) {
    document.fail("base", "must name a config file, or be a config");
  }
  const std::string path = document.string("base");
  try {
    return {read_file(path), path};
  } catch (const FileError& error) {
    throw ConfigError(fmt::format("base: {}", error.what()));
  }
}

std::vector<std::string> read_launch(JsonReader& document) {
  std::vector<std::string> launch = document.strings("launch", std::vector<std::string>{});
  if (!launch.empty() && !program_exists(launch[0])) {
    document.fail("launch", "must start with a program that exists");
  }
  return launch;
}

SweepPoint make_point(const std::string& dir,
                      const BaseConfig& base,
                      const SweepSettings& settings) {
  SweepPoint point{.name = point_name(settings), .settings = settings};
  JsonReader document = JsonReader::parse(base.text, base.source);
  for (const SweepSetting& setting : settings) {
    document.set(fmt::format("{}={}", setting.key, setting.value));
  }
  document.set(fmt::format("run.dir={}", json_string(fmt::format("{}/{}", dir, point.name))));
  point.config = read_train_config(document);
  point.resolved = document.resolved();
  require_runnable(plan_job(point.config));
  return point;
}

Sweep read(JsonReader document) {
  Sweep sweep{.dir = document.string("dir")};
  if (sweep.dir.empty()) {
    document.fail("dir", "must name a directory");
  }
  const BaseConfig base = read_base(document);
  if (!document.has("grid")) {
    document.fail("grid", "must vary at least one key, as in {\"optimizer.lr\": [1e-3, 3e-4]}");
  }
  const std::string grid = document.json("grid");
  sweep.launch = read_launch(document);
  document.finish();
  const std::vector<SweepSettings> points = expand_grid(grid);
  static_cast<void>(JsonReader::parse(base.text, base.source));  // else every point would say so
  sweep.points.reserve(points.size());
  for (const SweepSettings& settings : points) {
    try {
      sweep.points.push_back(make_point(sweep.dir, base, settings));
    } catch (const ConfigError& error) {
      std::string_view message = error.what();
      constexpr std::string_view kOption = "--set: ";
      message.remove_prefix(message.starts_with(kOption) ? kOption.size() : 0);
      throw ConfigError(fmt::format("grid point {}: {}", point_text(settings), message));
    }
    for (const SweepSetting& setting : settings) {
      if (std::find(sweep.keys.begin(), sweep.keys.end(), setting.key) == sweep.keys.end()) {
        sweep.keys.push_back(setting.key);
      }
    }
  }
  return sweep;
}

}  // namespace

Sweep read_sweep(const std::string& path) {
  return reading<ConfigError>(path, [&] { return read(JsonReader::parse_file(path)); });
}

}  // namespace slackline
