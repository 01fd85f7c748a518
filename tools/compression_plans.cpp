#include "tools/compression_plans.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "compress/codec_setting_json.h"
#include "core/error.h"
#include "core/file_io.h"
#include "parallel/critical_path.h"
#include "parallel/schedule/chrome_trace.h"
#include "tools/joined_text.h"

namespace slackline {

namespace {

using schedule::Phase;
using schedule::Site;
using schedule::TransferClass;

constexpr std::array<std::string_view, 5> kSites = {
    "pipeline_forward", "pipeline_backward", "data_gradient", "embedding", "parameter_gather"};
constexpr std::array<std::string_view, 4> kPhases = {"warmup", "steady", "cooldown", "step"};
constexpr std::int64_t kMostStages = 1 << 16;

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

PlanFromStep read_entry(JsonReader& section) {
  PlanFromStep row{.from_step = section.integer("from_step", {.min = 1})};
  static_cast<void>(section.json("predicted_step_seconds"));
  for (JsonReader& members : section.sections("classes")) {
    row.plan.classes.push_back(read_class(members));
  }
  section.finish();
  return row;
}

PlanHistory read_entries(std::vector<JsonReader> sections) {
  PlanHistory plans;
  plans.reserve(sections.size());
  for (JsonReader& section : sections) {
    plans.push_back(read_entry(section));
  }
  return plans;
}

// The document is a list; a reader takes objects.
PlanHistory read_plans(const std::string& path) {
  JsonReader document =
      JsonReader::parse("{\"plans\": " + read_file(path) + "}", "not a list of plans");
  PlanHistory plans = read_entries(document.sections("plans"));
  document.finish();
  return plans;
}

void require_order(const PlanHistory& plans) {
  const auto not_later = [](const PlanFromStep& a, const PlanFromStep& b) {
    return a.from_step >= b.from_step;
  };
  if (plans.empty() || plans.front().from_step != 1 ||
      std::adjacent_find(plans.begin(), plans.end(), not_later) != plans.end()) {
    throw ConfigError("plans must stand in order of from_step, the first from step 1");
  }
}

// The rows of the config's own classes, in their order; other rows may stand there as long as they
// ask for no codec.
CompressionPlan fitted(const CompressionPlan& read, const std::vector<TransferClass>& classes) {
  std::set<TransferClass> seen;
  for (const CompressionPlan::Class& row : read.classes) {
    if (!seen.insert(row.members).second) {
      throw ConfigError(
          fmt::format("class {} stands there twice", schedule::class_text(row.members)));
    }
    if (row.codec && std::find(classes.begin(), classes.end(), row.members) == classes.end()) {
      throw ConfigError(
          fmt::format("the config has no transfers of class {}; a plan fits runs of its own layout "
                      "and schedule",
                      schedule::class_text(row.members)));
    }
  }
  CompressionPlan plan;
  for (const TransferClass& members : classes) {
    const auto row = std::find_if(
        read.classes.begin(), read.classes.end(), [&](const CompressionPlan::Class& candidate) {
          return candidate.members == members;
        });
    plan.classes.push_back(
        row != read.classes.end()
            ? *row
            : CompressionPlan::Class{.members = members, .reason = "not in the replayed plan"});
  }
  return plan;
}

PlanHistory replayed(const std::string& path, const MeshJob& job) {
  try {
    PlanHistory plans = read_plans(path);
    require_order(plans);
    const std::vector<TransferClass> classes = compressible_classes(job);
    for (PlanFromStep& row : plans) {
      row.plan = fitted(row.plan, classes);
    }
    return plans;
  } catch (const FileError& problem) {
    throw ConfigError(fmt::format("compress.plan: {}", problem.what()));
  } catch (const ConfigError& problem) {
    throw ConfigError(fmt::format("compress.plan: {}: {}", path, problem.what()));
  }
}

}  // namespace

std::string compression_plan_json(const PlanFromStep& plan) {
  std::vector<std::string> rows;
  rows.reserve(plan.plan.classes.size());
  for (const CompressionPlan::Class& row : plan.plan.classes) {
    rows.push_back(
        fmt::format(R"({{"site": "{}", "stage": {}, "phase": "{}", "codec": {}, "reason": {}}})",
                    schedule::site_name(row.members.site),
                    row.members.stage,
                    schedule::phase_name(row.members.phase),
                    row.codec ? codec_setting_json(*row.codec) : "null",
                    schedule::json_string(row.reason)));
  }
  return fmt::format(R"({{"from_step": {}, "classes": [{}]}})", plan.from_step, joined(rows, ", "));
}

PlanFromStep read_compression_plan(const std::string& json) {
  JsonReader section = JsonReader::parse(json, "a plan");
  return read_entry(section);
}

std::string plan_document(const PlanFromStep& in_force, const PlanHistory& plans) {
  std::string document = compression_plan_json(in_force);
  if (plans.size() > 1) {
    std::vector<std::string> entries;
    entries.reserve(plans.size());
    for (const PlanFromStep& plan : plans) {
      entries.push_back(compression_plan_json(plan));
    }
    document.pop_back();
    document += fmt::format(R"(, "history": [{}]}})", joined(entries, ", "));
  }
  return document;
}

PlanHistory resumed_plans(const PlanHistory& of_config, const std::string& document) {
  if (document.empty()) {
    return of_config;
  }
  const PlanHistory stored =
      read_entries(JsonReader::parse(document, "the checkpoint's plan").sections("history"));
  const bool goes_on = stored.size() > of_config.size() &&
                       std::equal(of_config.begin(), of_config.end(), stored.begin());
  return goes_on ? stored : of_config;
}

PlanHistory compression_plans(const TrainConfig& config) {
  const MeshJob job = config.mesh_job();
  return config.compress.policy == CompressionPolicy::replay
             ? replayed(config.compress.plan, job)
             : make_compression_plans(config.compress, job);
}

PlanHistory expected_plans(const TrainConfig& config,
                           const StepCosts& costs,
                           const LinkSpeeds& links) {
  PlanHistory plans = compression_plans(config);
  if (config.compress.policy != CompressionPolicy::critical_path) {
    return plans;
  }
  const bool rehearses = config.device == Device::rehearsal;
  const std::int64_t from_step =
      std::max<std::int64_t>(rehearses ? 1 : kFirstChosenStep, config.compress.warmup_steps + 1);
  if (from_step == 1) {
    plans.clear();
  }
  plans.push_back(
      {.from_step = from_step,
       .plan = choose_critical_path(config.compress, config.mesh_job(), costs, links).plan});
  return plans;
}

}  // namespace slackline
