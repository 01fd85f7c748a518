#include <string>

#include <fmt/format.h>

#include "parallel/schedule/schedule_traits.h"
#include "tools/record/run_summary.h"
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
  if (const auto speed = summary_of(metrics).tokens_per_second) {
    rows.push_back({"tokens a second, last half", number_text(*speed)});
  }
  return table({{"what"}, {"value"}}, rows);
}

}  // namespace slackline::report
