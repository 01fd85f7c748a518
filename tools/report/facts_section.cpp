#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "parallel/schedule/schedule_traits.h"
#include "tools/report/charts/units.h"
#include "tools/report/sections.h"

namespace slackline::report {

namespace {

std::string layout_text(const RunRecord& run) {
  const ParallelConfig& parallel = run.config.parallel;
  return fmt::format("tensor {} x pipeline {} x data {}, {}, {} micro-batches",
                     parallel.tensor,
                     parallel.pipeline,
                     parallel.data,
                     schedule::traits_of(run.plan.schedule.kind).name,
                     run.config.num_micro_batches());
}

std::string model_text(const RunRecord& run) {
  const ModelConfig& model = run.config.model;
  return fmt::format("{} parameters: {} layers, {} channels, {} heads, {} tokens",
                     run.plan.parameters,
                     model.layers,
                     model.hidden,
                     model.heads,
                     model.sequence);
}

// As in the step's lines: of the last half, so that a slow start does not count.
double tokens_per_second(const std::vector<StepRecord>& steps) {
  double tokens = 0.0;
  double seconds = 0.0;
  for (std::size_t i = steps.size() / 2; i < steps.size(); ++i) {
    tokens += static_cast<double>(steps[i].tokens);
    seconds += steps[i].step_seconds;
  }
  return tokens / seconds;
}

}  // namespace

Html facts_section(const RunRecord& run) {
  const Metrics& metrics = run.metrics;
  std::vector<std::vector<std::string>> rows = {{"model", model_text(run)},
                                                {"layout", layout_text(run)}};
  if (!metrics.steps.empty()) {
    const StepRecord& last = metrics.steps.back();
    rows.push_back({"steps", fmt::format("{} of {}", last.step, run.config.run.steps)});
    rows.push_back({"last training loss", number_text(last.loss)});
  }
  if (!metrics.evaluations.empty()) {
    const EvaluatedStep& last = metrics.evaluations.back();
    rows.push_back({"last validation loss",
                    fmt::format("{}, after step {}", number_text(last.loss), last.step)});
  }
  if (const std::vector<StepRecord> timed = metrics.timed(); !timed.empty()) {
    rows.push_back({"tokens a second, last half", number_text(tokens_per_second(timed))});
  }
  return table({{"what"}, {"value"}}, rows);
}

}  // namespace slackline::report
