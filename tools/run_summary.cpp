#include "tools/run_summary.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_io.h"
#include "core/strict_json.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

// What a step line adds to the means.
struct StepNumbers {
  double tokens = 0.0;
  double step_seconds = 0.0;
  double exposed_seconds = 0.0;
  std::array<AxisTraffic, kReportedAxes.size()> axes{};
};

std::optional<double> number_of(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

StepNumbers numbers_of(const Json& line) {
  StepNumbers numbers{.tokens = line.at("tokens").get<double>(),
                      .step_seconds = line.at("step_seconds").get<double>(),
                      .exposed_seconds = line.at("seconds").at("exposed").get<double>()};
  for (std::size_t i = 0; i < kReportedAxes.size(); ++i) {
    const Json& axis = line.at("axes").at(std::string(kReportedAxes[i]));
    numbers.axes[i] = {.raw_bytes = axis.at("raw_bytes").get<double>(),
                       .sent_bytes = axis.at("sent_bytes").get<double>(),
                       .exposed_seconds = axis.at("exposed_seconds").get<double>()};
  }
  return numbers;
}

void read_line(const Json& line, RunSummary& summary, std::vector<StepNumbers>& steps) {
  if (line.contains("eval_loss")) {
    summary.eval_loss = number_of(line["eval_loss"]);
    return;
  }
  summary.steps = line.at("step").get<std::int64_t>();
  summary.loss = number_of(line.at("loss"));
  if (const StepNumbers numbers = numbers_of(line); numbers.step_seconds > 0.0) {
    steps.push_back(numbers);  // of a step that was stopped before its end nothing was measured
  }
}

void add_means(const std::vector<StepNumbers>& steps, RunSummary& summary) {
  if (steps.empty()) {
    return;
  }
  const std::size_t first = steps.size() / 2;
  const auto count = static_cast<double>(steps.size() - first);
  StepNumbers sum;
  for (std::size_t i = first; i < steps.size(); ++i) {
    sum.tokens += steps[i].tokens;
    sum.step_seconds += steps[i].step_seconds;
    sum.exposed_seconds += steps[i].exposed_seconds;
    for (std::size_t axis = 0; axis < sum.axes.size(); ++axis) {
      sum.axes[axis].raw_bytes += steps[i].axes[axis].raw_bytes;
      sum.axes[axis].sent_bytes += steps[i].axes[axis].sent_bytes;
      sum.axes[axis].exposed_seconds += steps[i].axes[axis].exposed_seconds;
    }
  }
  summary.step_seconds = sum.step_seconds / count;
  summary.tokens_per_second = sum.tokens / sum.step_seconds;
  summary.exposed_seconds = sum.exposed_seconds / count;
  for (std::size_t axis = 0; axis < sum.axes.size(); ++axis) {
    summary.axes[axis] = {.raw_bytes = sum.axes[axis].raw_bytes / count,
                          .sent_bytes = sum.axes[axis].sent_bytes / count,
                          .exposed_seconds = sum.axes[axis].exposed_seconds / count};
  }
}

std::string metrics_path(const std::string& run_directory) {
  return fmt::format("{}/metrics.jsonl", run_directory);
}

}  // namespace

RunSummary summarize_run(const std::string& run_directory) {
  const std::string path = metrics_path(run_directory);
  RunSummary summary;
  if (!path_exists(path)) {
    return summary;
  }
  const std::string text = read_file(path);
  std::vector<StepNumbers> steps;
  std::size_t number = 0;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    ++number;
    try {
      read_line(
          parse_strict_json(std::string_view(text).substr(begin, end - begin)), summary, steps);
    } catch (const std::exception& error) {
      throw FileError(
          fmt::format("{}: line {} is no line of metrics: {}", path, number, error.what()));
    }
  }
  add_means(steps, summary);
  return summary;
}

std::int64_t newest_step(const std::string& run_directory) {
  constexpr std::streamoff kEnd = 64 << 10;  // bytes; longer than any line
  constexpr std::string_view kStart = "{\"step\": ";
  std::ifstream file(metrics_path(run_directory), std::ios::binary | std::ios::ate);
  if (!file) {
    return 0;
  }
  const auto size = static_cast<std::streamoff>(file.tellg());
  std::string end(static_cast<std::size_t>(std::min(size, kEnd)), '\0');
  file.seekg(size - static_cast<std::streamoff>(end.size()));
  file.read(end.data(), static_cast<std::streamsize>(end.size()));
  const std::size_t at = end.rfind(kStart);
  std::int64_t step = 0;
  if (at != std::string::npos) {
    std::from_chars(end.data() + at + kStart.size(), end.data() + end.size(), step);
  }
  return step;
}

}  // namespace slackline
