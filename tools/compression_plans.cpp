#include "tools/compression_plans.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "compress/codec_setting_json.h"
#include "core/error.h"
#include "core/file_io.h"

namespace slackline {

namespace {

using schedule::Phase;
using schedule::Site;
using schedule::TransferClass;

constexpr std::array<std::string_view, 5> kSites = {
    "pipeline_forward", "pipeline_backward", "data_gradient", "embedding", "parameter_gather"};
constexpr std::array<std::string_view, 4> kPhases = {"warmup", "steady", "cooldown", "step"};
constexpr std::int64_t kMostStages = 1 << 16;

std::string class_text(const TransferClass& members) {
  return fmt::format("{}, stage {}, {}",
                     schedule::site_name(members.site),
                     members.stage,
                     schedule::phase_name(members.phase));
}

CompressionPlan::Class read_class(JsonReader& section) {
  CompressionPlan::Class row{
      .members = {
          .site = static_cast<Site>(section.choice("site", kSites)),
          .stage = static_cast<int>(section.integer("stage", {.min = 0, .max = kMostStages})),
          .phase = static_cast<Phase>(section.choice("phase", kPhases))}};
  if (section.has("codec")) {
    JsonReader codec = section.section("codec");
    row.codec = read_codec_setting(codec);
    codec.finish();
  }
  row.reason = section.string("reason", "");
  // What a plan tells about a class besides.
  for (const char* key : {"raw_bytes",
                          "sent_bytes",
                          "raw_seconds",
                          "encode_seconds",
                          "decode_seconds",
                          "slack_seconds"}) {
    static_cast<void>(section.json(key));
  }
  section.finish();
  return row;
}

// The document is a list; a reader takes objects.
JsonReader open_plans(const std::string& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const FileError& problem) {
    const std::string_view text_of_problem = problem.what();  // begins with the path
    throw ConfigError(std::string(text_of_problem.substr(path.size() + 2)));
  }
  return JsonReader::parse("{\"plans\": " + text + "}", path);
}

void require_fit(const CompressionPlan& plan, const std::vector<TransferClass>& classes) {
  for (const CompressionPlan::Class& row : plan.classes) {
    if (row.codec && std::find(classes.begin(), classes.end(), row.members) == classes.end()) {
      throw ConfigError(
          fmt::format("the config has no transfers of class {}; a plan fits runs of its own layout "
                      "and schedule",
                      class_text(row.members)));
    }
  }
}

PlanHistory replayed(const std::string& path, const MeshJob& job) {
  const std::vector<TransferClass> classes = compressible_classes(job);
  PlanHistory plans;
  for (JsonReader& section : open_plans(path).sections("plans")) {
    PlanFromStep row{.from_step = section.integer("from_step", {.min = 1})};
    static_cast<void>(section.json("predicted_step_seconds"));
    for (JsonReader& members : section.sections("classes")) {
      row.plan.classes.push_back(read_class(members));
    }
    section.finish();
    require_fit(row.plan, classes);
    plans.push_back(std::move(row));
  }
  const auto by_step = [](const PlanFromStep& a, const PlanFromStep& b) {
    return a.from_step < b.from_step;
  };
  if (plans.empty() || plans.front().from_step != 1 ||
      std::adjacent_find(plans.begin(), plans.end(), [&](const auto& a, const auto& b) {
        return !by_step(a, b);
      }) != plans.end()) {
    throw ConfigError("plans must stand in order of from_step, the first from step 1");
  }
  return plans;
}

}  // namespace

PlanHistory compression_plans(const TrainConfig& config) {
  const MeshJob job = config.mesh_job();
  if (config.compress.policy != CompressionPolicy::replay) {
    return make_compression_plans(config.compress, job);
  }
  const std::string& path = config.compress.plan;
  try {
    return replayed(path, job);
  } catch (const ConfigError& problem) {
    throw ConfigError(fmt::format("compress.plan: {}: {}", path, problem.what()));
  }
}

}  // namespace slackline
