#include "tools/sweep/sweep_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/joined_text.h"
#include "core/shown_text.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

std::string csv_text(std::string_view value) {
  std::string text = shown_lines(value);
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char character : text) {
    quoted.append(character == '"' ? 2 : 1, character);
  }
  quoted += '"';
  return quoted;
}

std::string csv_value(const Json& value) {
  if (value.is_string()) {
    return csv_text(value.get_ref<const std::string&>());
  }
  if (value.is_number_float()) {
    return fmt::format("{}", value.get<double>());
  }
  return value.is_null() ? "" : value.dump();
}

std::string csv_line(const std::vector<std::string>& fields) {
  return fmt::format("{}\n", joined(fields, ","));
}

std::string setting_field(const SweepRow& row, const std::string& key) {
  const auto found = std::ranges::find(row.settings, key, &SweepSetting::key);
  if (found == row.settings.end()) {
    return "";
  }
  const Json value = Json::parse(found->value);
  return csv_text(value.is_string() ? value.get_ref<const std::string&>() : found->value);
}

Json json_number(const std::optional<double>& number) {
  return number ? Json(*number) : Json();
}

// What a row says of its run as a whole, null for what is absent: a column each.
Json values_of(const SweepRow& row) {
  const RunSummary& summary = row.summary;
  return {{"status", row.status()},
          {"exit_code", row.outcome ? Json(row.outcome->exit_code) : Json()},
          {"message", row.outcome ? Json(row.outcome->message) : Json()},
          {"steps", row.outcome ? Json(summary.steps) : Json()},
          {"loss", json_number(summary.loss)},
          {"eval_loss", json_number(summary.eval_loss)},
          {"step_seconds", json_number(summary.step_seconds)},
          {"tokens_per_second", json_number(summary.tokens_per_second)},
          {"exposed_seconds", json_number(summary.exposed_seconds)}};
}

std::vector<std::string> header_fields(const std::vector<std::string>& keys) {
  std::vector<std::string> fields = {"run"};
  for (const std::string& key : keys) {
    fields.push_back(csv_text(key));
  }
  const Json values = values_of({});
  for (const auto& column : values.items()) {
    fields.push_back(column.key());
  }
  for (const std::string_view axis : kReportedAxes) {
    for (const char* quantity : {"raw_bytes", "sent_bytes", "exposed_seconds"}) {
      fields.push_back(fmt::format("{}_{}", axis, quantity));
    }
  }
  return fields;
}

std::vector<std::string> row_fields(const std::vector<std::string>& keys, const SweepRow& row) {
  std::vector<std::string> fields = {csv_text(row.run)};
  for (const std::string& key : keys) {
    fields.push_back(setting_field(row, key));
  }
  for (const Json& value : values_of(row)) {
    fields.push_back(csv_value(value));
  }
  for (const AxisTraffic& axis : row.summary.axes) {
    const bool measured = row.summary.step_seconds.has_value();
    for (const double number : {axis.raw_bytes, axis.sent_bytes, axis.exposed_seconds}) {
      fields.push_back(measured ? fmt::format("{}", number) : "");
    }
  }
  return fields;
}

// Means of bytes are whole where every step sends the same.
Json json_bytes(double bytes) {
  return bytes == std::floor(bytes) ? Json(static_cast<std::int64_t>(bytes)) : Json(bytes);
}

Json settings_json(const SweepSettings& settings) {
  Json json = Json::object();
  for (const SweepSetting& setting : settings) {
    json[setting.key] = Json::parse(setting.value);
  }
  return json;
}

Json axes_json(const RunSummary& summary) {
  Json json = Json::object();
  for (std::size_t i = 0; i < kReportedAxes.size(); ++i) {
    const AxisTraffic& axis = summary.axes[i];
    json[std::string(kReportedAxes[i])] = {{"raw_bytes", json_bytes(axis.raw_bytes)},
                                           {"sent_bytes", json_bytes(axis.sent_bytes)},
                                           {"exposed_seconds", axis.exposed_seconds}};
  }
  return summary.step_seconds ? json : Json();
}

Json row_json(const SweepRow& row) {
  Json json = {{"run", row.run}, {"settings", settings_json(row.settings)}};
  json.update(values_of(row));
  json["axes"] = axes_json(row.summary);
  return json;
}

}  // namespace

std::string_view SweepRow::status() const {
  if (!outcome) {
    return "pending";
  }
  return outcome->exit_code == static_cast<int>(ExitCode::done) ? "done" : "failed";
}

std::string results_csv(const std::vector<std::string>& keys, const std::vector<SweepRow>& rows) {
  std::string text = csv_line(header_fields(keys));
  for (const SweepRow& row : rows) {
    text += csv_line(row_fields(keys, row));
  }
  return text;
}

std::string results_json(const std::vector<SweepRow>& rows) {
  const std::string lines = joined_of(rows, ",\n  ", [](const SweepRow& row) {
    return row_json(row).dump(-1, ' ', false, Json::error_handler_t::replace);
  });
  return fmt::format("[\n  {}\n]\n", lines);
}

}  // namespace slackline
