#include "parallel/plan/compression_plan_json.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "compress/codec_setting_json.h"
#include "compress/compress_config.h"
#include "core/error.h"
#include "core/file_io.h"
#include "core/joined_text.h"
#include "core/json_reader.h"
#include "core/json_string.h"
#include "parallel/plan/transfer_class_json.h"

namespace slackline {

namespace {

using schedule::Phase;
using schedule::TransferClass;

CompressionPlan::Class read_class(JsonReader& section) {
  CompressionPlan::Class row{.members = read_transfer_class(section)};
  if (section.has("codec")) {
    JsonReader codec = section.section("codec");
    row.codec = row.members.site == schedule::Site::parameter_gather ? read_gather_setting(codec)
                                                                     : read_codec_setting(codec);
    codec.finish();
  }
  row.reason = section.string("reason", "");
  // Tells more about a class, beside its codec.
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

void require_order(const PlanHistory& plans) {
  const auto not_later = [](const PlanFromStep& a, const PlanFromStep& b) {
    return a.from_step >= b.from_step;
  };
  if (plans.empty() || plans.front().from_step != 1 ||
      std::adjacent_find(plans.begin(), plans.end(), not_later) != plans.end()) {
    throw ConfigError("plans must stand in order of from_step, the first from step 1");
  }
}

bool has(const std::vector<TransferClass>& classes, const TransferClass& members) {
  return std::find(classes.begin(), classes.end(), members) != classes.end();
}

// A row of phase step with none of the tail beside it stands for both, as far as the classes have
// them: the two were one class once, and whoever writes a plan by hand need not part them.
CompressionPlan with_tails(CompressionPlan read, const std::vector<TransferClass>& classes) {
  std::vector<CompressionPlan::Class> rows;
  for (const CompressionPlan::Class& row : read.classes) {
    TransferClass tail = row.members;
    tail.phase = Phase::tail;
    const bool names_tail =
        std::ranges::find(read.classes, tail, &CompressionPlan::Class::members) !=
        read.classes.end();
    const bool both = row.members.phase == Phase::step && !names_tail && has(classes, tail);
    if (!both || has(classes, row.members)) {
      rows.push_back(row);
    }
    if (both) {
      rows.push_back(row);
      rows.back().members = tail;
    }
  }
  read.classes = std::move(rows);
  return read;
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
    if (row.codec && !has(classes, row.members)) {
      throw ConfigError(
          fmt::format("the config has no transfers of class {}; a plan fits runs of its own layout "
                      "and schedule",
                      schedule::class_text(row.members)));
    }
  }
  CompressionPlan plan;
  for (const TransferClass& members : classes) {
    const auto row = std::ranges::find(read.classes, members, &CompressionPlan::Class::members);
    plan.classes.push_back(
        row != read.classes.end()
            ? *row
            : CompressionPlan::Class{.members = members, .reason = "not in the replayed plan"});
  }
  return plan;
}

}  // namespace

std::string compression_plan_json(const PlanFromStep& plan) {
  const auto row_text = [](const CompressionPlan::Class& row) {
    return fmt::format(R"({{{}, "codec": {}, "reason": {}}})",
                       transfer_class_members(row.members),
                       codec_setting_json(row.codec),
                       json_string(row.reason));
  };
  return fmt::format(R"({{"from_step": {}, "classes": [{}]}})",
                     plan.from_step,
                     joined_of(plan.plan.classes, ", ", row_text));
}

PlanFromStep read_compression_plan(const std::string& json) {
  JsonReader section = JsonReader::parse(json, "a plan");
  return read_entry(section);
}

std::string plan_document(const PlanFromStep& in_force,
                          const PlanHistory& plans,
                          const CodecErrors& errors) {
  std::string document = compression_plan_json(in_force);
  document.pop_back();
  return document + fmt::format(R"(, "history": [{}], "errors": [{}], "sampled_errors": [{}]}})",
                                joined_of(plans, ", ", compression_plan_json),
                                joined_of(errors.tried(), ", ", codec_error_text),
                                joined_of(errors.sampled(), ", ", codec_error_text));
}

StoredPlans read_plan_document(const std::string& document,
                               const std::vector<TransferClass>& classes) {
  JsonReader section = JsonReader::parse(document, "the checkpoint's plan");
  StoredPlans stored{.plans = read_entries(section.sections("history"))};
  if (!stored.plans.empty()) {
    require_order(stored.plans);
  }
  for (PlanFromStep& row : stored.plans) {
    row.plan = with_tails(std::move(row.plan), classes);
  }
  for (const CodecError& error : read_codec_errors(section, "errors")) {
    stored.errors.note_trial(error);
  }
  for (const CodecError& error : read_codec_errors(section, "sampled_errors")) {
    stored.errors.note_sample(error);
  }
  return stored;
}

// The document is a list; a reader takes objects.
PlanHistory read_plans(const std::string& path) {
  JsonReader document = JsonReader::parse("{\"plans\": " + read_file(path, kMostJsonBytes) + "}",
                                          "not a list of plans");
  PlanHistory plans = read_entries(document.sections("plans"));
  document.finish();
  return plans;
}

PlanHistory read_plan_file(const std::string& path,
                           std::vector<TransferClass> classes,
                           const std::vector<TransferClass>& gathers) {
  PlanHistory plans = read_plans(path);
  require_order(plans);
  if (std::ranges::any_of(plans, [](const PlanFromStep& row) {
        return row.plan.compresses_any_of(schedule::Site::parameter_gather);
      })) {
    classes.insert(classes.end(), gathers.begin(), gathers.end());
  }
  for (PlanFromStep& row : plans) {
    row.plan = fitted(with_tails(std::move(row.plan), classes), classes);
  }
  return plans;
}

}  // namespace slackline
