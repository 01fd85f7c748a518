#include "tools/record/run_summary.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/file_io.h"

namespace slackline {

namespace {

// Returns nothing for a number that was not finite.
std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

// Steps follow each other by one: a power loss may have taken lines that a checkpoint outlived.
std::optional<std::string> gap_in(const std::vector<StepRecord>& steps) {
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].step != steps[i - 1].step + 1) {
      return fmt::format("has step {} behind step {}", steps[i].step, steps[i - 1].step);
    }
  }
  return std::nullopt;
}

void add_means(const std::vector<StepRecord>& steps, RunSummary& summary) {
  if (steps.empty()) {
    return;
  }
  const std::size_t first = steps.size() / 2;
  const auto count = static_cast<double>(steps.size() - first);
  StepRecord sum;
  for (std::size_t i = first; i < steps.size(); ++i) {
    sum.tokens += steps[i].tokens;
    sum.step_seconds += steps[i].step_seconds;
    sum.seconds.exposed += steps[i].seconds.exposed;
    for (std::size_t axis = 0; axis < sum.axes.size(); ++axis) {
      sum.axes[axis].raw_bytes += steps[i].axes[axis].raw_bytes;
      sum.axes[axis].sent_bytes += steps[i].axes[axis].sent_bytes;
      sum.axes[axis].exposed_seconds += steps[i].axes[axis].exposed_seconds;
    }
  }
  summary.step_seconds = sum.step_seconds / count;
  summary.tokens_per_second = static_cast<double>(sum.tokens) / sum.step_seconds;
  summary.exposed_seconds = sum.seconds.exposed / count;
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

RunSummary summary_of(const report::Metrics& metrics) {
  RunSummary summary;
  if (!metrics.steps.empty()) {
    summary.steps = metrics.steps.back().step;
    summary.first_step = metrics.steps.front().step;
    summary.gap = gap_in(metrics.steps);
    summary.loss = finite(metrics.steps.back().loss);
  }
  if (!metrics.evaluations.empty()) {
    summary.eval_loss = finite(metrics.evaluations.back().loss);
  }
  // A step that was stopped before its end has no measurements.
  add_means(metrics.timed(), summary);
  return summary;
}

RunSummary summarize_run(const std::string& run_directory) {
  const std::string path = metrics_path(run_directory);
  return path_exists(path) ? summary_of(report::read_metrics(path)) : RunSummary{};
}

std::int64_t newest_step(const std::string& run_directory) {
  constexpr std::streamoff kEnd = 64 << 10;  // bytes; longer than most lines
  constexpr std::string_view kStart = "{\"step\": ";
  std::ifstream file(metrics_path(run_directory), std::ios::binary | std::ios::ate);
  if (!file) {
    return 0;
  }
  const auto size = static_cast<std::streamoff>(file.tellg());
  std::string end;
  std::size_t at = std::string::npos;
  for (std::streamoff length = kEnd; at == std::string::npos; length *= 4) {
    end.assign(static_cast<std::size_t>(std::min(size, length)), '\0');
    file.seekg(size - static_cast<std::streamoff>(end.size()));
    file.read(end.data(), static_cast<std::streamsize>(end.size()));
    at = end.rfind(kStart);
    if (length >= size) {
      break;
    }
  }
  std::int64_t step = 0;
  if (at != std::string::npos) {
    std::from_chars(end.data() + at + kStart.size(), end.data() + end.size(), step);
  }
  return step;
}

}  // namespace slackline
