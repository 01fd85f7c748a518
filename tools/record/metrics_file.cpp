#include "tools/record/metrics_file.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_io.h"
#include "core/json_reader.h"

namespace slackline::report {

namespace {

// Null is how a number that is not finite is written.
double number(JsonReader& section, std::string_view key) {
  return section.has(key) ? section.number(key) : std::numeric_limits<double>::quiet_NaN();
}

double amount(JsonReader& section, std::string_view key) {
  return section.number(key, {.default_value = 0.0, .min = 0.0});
}

std::optional<TravelRecord> read_travel(JsonReader& outer) {
  if (!outer.has("round_seconds")) {
    return std::nullopt;
  }
  return TravelRecord{.sent_step = outer.integer("sent_step", {.min = 1}),
                      .round_seconds = amount(outer, "round_seconds"),
                      .period_seconds = amount(outer, "period_seconds"),
                      .wait_seconds = amount(outer, "wait_seconds")};
}

// Reads the end of a round. Losses of a list may be null, too.
RoundRecord read_round(JsonReader& line) {
  JsonReader outer = line.section("outer");
  RoundRecord round{
      .penalty = number(outer, "penalty"),
      .distance = number(outer, "distance"),
      .period = outer.integer("period", {.min = 1}),
      .left_out = outer.boolean("left_out", false),
      .clipped = outer.has("clipped") ? std::optional(number(outer, "clipped")) : std::nullopt,
      .travel = read_travel(outer)};
  const std::string losses = line.json("worker_losses");
  for (std::size_t begin = 1; begin < losses.size();) {
    const std::size_t end = std::min(losses.find_first_of(",]", begin), losses.size());
    const std::string text = losses.substr(begin, end - begin);
    const bool is_known = !text.empty() && text != "null";
    round.worker_losses.push_back(is_known ? std::strtod(text.c_str(), nullptr)
                                           : std::numeric_limits<double>::quiet_NaN());
    begin = end + 1;
  }
  return round;
}

StepRecord read_step(JsonReader& line) {
  StepRecord record{.step = line.integer("step", {.min = 1}),
                    .loss = number(line, "loss"),
                    .grad_norm = number(line, "grad_norm"),
                    .lr = number(line, "lr"),
                    .tokens = line.integer("tokens", {.default_value = 0, .min = 0}),
                    .step_seconds = number(line, "step_seconds"),
                    .time = amount(line, "time"),
                    .skipped = line.boolean("skipped", false)};
  JsonReader slowest = line.section("slowest");
  record.slowest = {
      .rank = static_cast<int>(slowest.integer("rank", {.default_value = 0, .min = 0})),
      .host = slowest.string("host", ""),
      .compute_seconds = amount(slowest, "compute_seconds")};
  JsonReader seconds = line.section("seconds");
  record.seconds = {.compute = amount(seconds, "compute"),
                    .bubble = amount(seconds, "bubble"),
                    .exposed = amount(seconds, "exposed"),
                    .other = amount(seconds, "other")};
  JsonReader axes = line.section("axes");
  for (std::size_t i = 0; i < kReportedAxes.size(); ++i) {
    record.has_workers |= i == kOuterAxis && axes.has(kReportedAxes[i]);
    JsonReader axis = axes.section(kReportedAxes[i]);
    record.axes[i] = {.raw_bytes = amount(axis, "raw_bytes"),
                      .sent_bytes = amount(axis, "sent_bytes"),
                      .across_bytes = axis.has("across_bytes")
                                          ? std::make_optional(amount(axis, "across_bytes"))
                                          : std::nullopt,
                      .exposed_seconds = amount(axis, "exposed_seconds")};
  }
  if (line.has_section("outer")) {
    record.round = read_round(line);
  }
  return record;
}

void read_line(JsonReader line, Metrics& metrics) {
  const std::vector<std::string> keys = line.keys();
  const auto has = [&](const char* key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  if (has("eval_loss")) {
    metrics.evaluations.push_back(
        {.step = line.integer("step", {.min = 1}), .loss = number(line, "eval_loss")});
  } else if (has("loss")) {
    metrics.steps.push_back(read_step(line));
  } else {
    throw ConfigError("has neither loss nor eval_loss");
  }
}

bool is_json(std::string_view text) {
  try {
    static_cast<void>(JsonReader::parse(text, ""));
  } catch (const ConfigError&) {
    return false;
  }
  return true;
}

}  // namespace

std::vector<StepRecord> Metrics::timed() const {
  std::vector<StepRecord> whole;
  std::ranges::copy_if(steps, std::back_inserter(whole), [](const StepRecord& step) {
    return step.step_seconds > 0.0;
  });
  return whole;
}

Metrics read_metrics(const std::string& path) {
  const std::string text = read_file(path);
  Metrics metrics;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    ++number;
    const std::size_t newline = text.find('\n', begin);
    if (newline == std::string::npos) {
      metrics.cut = fmt::format("line {} has no end", number);
      break;
    }
    const std::string_view line = std::string_view(text).substr(begin, newline - begin);
    const bool last = newline + 1 == text.size();
    try {
      read_line(JsonReader::parse(line, "no JSON"), metrics);
    } catch (const ConfigError& error) {
      if (!last || is_json(line)) {
        throw FileError(fmt::format("{}: line {}: {}", path, number, error.what()));
      }
      metrics.cut = fmt::format("line {} is no JSON", number);
    }
    begin = newline + 1;
  }
  return metrics;
}

}  // namespace slackline::report
