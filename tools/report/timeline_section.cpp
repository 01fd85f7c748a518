#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "parallel/predict/timeline/slack.h"
#include "tools/report/charts/gantt_chart.h"
#include "tools/report/charts/step_bars.h"
#include "tools/report/charts/units.h"
#include "tools/report/compressed_transfers.h"
#include "tools/report/sections.h"

namespace slackline::report {

namespace {

using schedule::NodeKind;
using schedule::OpKind;

// More ranks are shown by those of the first replica alone.
constexpr std::size_t kMostRanks = 8;

std::vector<std::string> pipeline_names(const StepPlan& plan) {
  std::vector<std::string> names;
  names.reserve(plan.timeline.ranks.size());
  for (std::size_t rank = 0; rank < plan.timeline.ranks.size(); ++rank) {
    names.push_back(fmt::format("pipeline rank {}", rank));
  }
  return names;
}

std::vector<std::string> rank_names(const StepPlan& plan) {
  std::vector<std::string> names;
  names.reserve(plan.ranks.size());
  for (const PlannedRank& rank : plan.ranks) {
    const bool shown =
        plan.ranks.size() <= kMostRanks || (rank.place.tensor == 0 && rank.place.data == 0);
    names.push_back(shown ? fmt::format("rank {}", names.size()) : "");
  }
  return names;
}

std::string part_of_path(const schedule::TimelineNode& node,
                         const CompressedTransfers& compressed) {
  const std::string how = compressed.contains(node) ? ", compressed" : "";
  switch (node.kind) {
    case NodeKind::op:
      return node.op.kind == OpKind::forward           ? "forward passes"
             : node.op.kind == OpKind::backward_weight ? "weight gradients"
                                                       : "backward passes";
    case NodeKind::transfer:
      return fmt::format("{} between stages{}",
                         node.op.kind == OpKind::send_forward ? "activations" : "gradients",
                         how);
    case NodeKind::data_reduction:
    case NodeKind::embedding_sync:
    case NodeKind::parameter_gather:
      return site_name(node.members.site) + how;
    case NodeKind::gradient_norm:
      return "gradient norm";
    case NodeKind::optimizer:
      break;
  }
  return "optimizer";
}

// Lists one longest path. Buckets overlap the passes that make them: parts may exceed the step.
Html critical_path_table(const StepPlan& plan) {
  struct Part {
    int count = 0;
    double seconds = 0.0;
  };

  const CompressedTransfers compressed(plan, plan.compression.back().from_step);
  std::map<std::string, Part> parts;
  for (const int id : schedule::critical_path(plan.timeline)) {
    const schedule::TimelineNode& node = plan.timeline.nodes[static_cast<std::size_t>(id)];
    if (node.kind == NodeKind::op && !is_compute(node.op.kind)) {
      continue;
    }
    Part& part = parts[part_of_path(node, compressed)];
    part.count += node.part == schedule::NodePart::whole ? 1 : 0;
    part.seconds += node.duration().value;
  }
  std::vector<std::pair<std::string, Part>> longest_first(parts.begin(), parts.end());
  std::stable_sort(longest_first.begin(), longest_first.end(), [](const auto& a, const auto& b) {
    return a.second.seconds > b.second.seconds;
  });
  std::vector<std::vector<std::string>> rows;
  rows.reserve(parts.size());
  for (const auto& [name, part] : longest_first) {
    rows.push_back({name, fmt::format("{}", part.count), seconds_text(part.seconds)});
  }
  Html all = text_element("h4", "On the critical path");
  all += table({{"part"}, {"number", Align::right}, {"time", Align::right}}, rows);
  return all;
}

// One clock for both, so that lengths compare, unless one would be too small to be seen.
void share_scale(StepBars& predicted, StepBars& measured) {
  constexpr double kMostRatio = 3.0;
  const double longest = std::max(predicted.seconds, measured.seconds);
  if (longest <= kMostRatio * std::min(predicted.seconds, measured.seconds)) {
    predicted.seconds = longest;
    measured.seconds = longest;
  }
}

std::string predicted_caption(const RunRecord& run) {
  return fmt::format("Predicted from {}, under the plan in force from step {}: a step of {}",
                     run.plan.has_measured_costs ? "the run's measured costs" : "assumed speeds",
                     run.plan.compression.back().from_step,
                     seconds_text(run.plan.timeline.step.value));
}

std::string measured_caption(const RunRecord& run, const StepBars& measured, double seconds) {
  return fmt::format("Measured{}, {}: {}",
                     measured.step > 0 ? fmt::format(" in step {}", measured.step)
                                       : std::string(", all traced steps"),
                     run.plan.ranks.size() > kMostRanks ? "one replica" : "all ranks",
                     seconds_text(seconds));
}

Html remarks(const RunRecord& run) {
  Html all;
  if (!run.no_prediction.empty()) {
    all += notice(fmt::format("No predicted timeline: {}", run.no_prediction));
  } else if (!run.plan.has_measured_costs && run.config.device != Device::rehearsal) {
    all += notice(
        "The run has no costs.json, which is written after its sixth step. The predicted timeline "
        "is made of assumed speeds: its order is right, its seconds are not.");
  }
  if (run.trace.empty()) {
    all += notice(
        "There is no measured timeline, for the run has no trace.json. Train with --set trace=true "
        "to get one.");
  }
  return all;
}

bool is_drawable(const StepBars& step) {
  return step.seconds > 0.0 && !step.bars.empty();
}

}  // namespace

Html timeline_section(const RunRecord& run) {
  Html all = text_element("h3", "Timeline of a step");
  all += remarks(run);
  const bool predicts = run.no_prediction.empty();
  StepBars predicted = predicts ? predicted_bars(run.plan) : StepBars{};
  StepBars measured =
      run.trace.empty()
          ? StepBars{}
          : measured_bars(run.plan, predicts ? Prediction::known : Prediction::none, run.trace);
  const double measured_seconds = measured.seconds;
  if (is_drawable(predicted) && is_drawable(measured)) {
    share_scale(predicted, measured);
    if (predicted.seconds != measured.seconds) {
      all += notice(
          "The two timelines have time scales of their own: they are too far apart for one.");
    }
  }
  if (is_drawable(predicted)) {
    all += gantt_chart(
        predicted, pipeline_names(run.plan), "predicted-timeline", predicted_caption(run));
  }
  if (is_drawable(measured)) {
    all += gantt_chart(measured,
                       rank_names(run.plan),
                       "measured-timeline",
                       measured_caption(run, measured, measured_seconds));
    all +=
        text_element("p",
                     "Measured passes hold their transfers on the tensor axis, and the waiting for "
                     "them. Outlined is what the predicted timeline has on its critical path.");
  }
  if (predicts) {
    all += critical_path_table(run.plan);
  }
  return all;
}

}  // namespace slackline::report
