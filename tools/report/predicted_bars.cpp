#include <cstddef>
#include <optional>

#include <fmt/format.h>

#include "parallel/predict/timeline/slack.h"
#include "parallel/schedule/printer.h"
#include "tools/report/charts/step_bars.h"
#include "tools/report/charts/units.h"
#include "tools/report/compressed_transfers.h"

namespace slackline::report {

namespace {

using schedule::NodeKind;
using schedule::OpKind;
using schedule::TimelineNode;

struct Look {
  LaneKind lane{};
  BarKind kind{};
  std::string name{};
};

BarKind kind_of(OpKind op) {
  switch (op) {
    case OpKind::forward:
      return BarKind::forward;
    case OpKind::backward_weight:
      return BarKind::weight;
    default:
      return BarKind::backward;
  }
}

// Nothing for what takes no time: posts, waits and the norm.
std::optional<Look> look_of(const schedule::Schedule& schedule, const TimelineNode& node) {
  switch (node.kind) {
    case NodeKind::op:
      if (!is_compute(node.op.kind)) {
        return std::nullopt;
      }
      return Look{LaneKind::compute, kind_of(node.op.kind), op_text(schedule, node.op)};
    case NodeKind::transfer: {
      const bool forward = node.op.kind == OpKind::send_forward;
      return Look{forward ? LaneKind::activations : LaneKind::gradients,
                  forward ? BarKind::activations : BarKind::gradients,
                  op_text(schedule, node.op)};
    }
    case NodeKind::data_reduction:
    case NodeKind::embedding_sync:
    case NodeKind::parameter_gather:
      return Look{LaneKind::data, BarKind::data, site_name(node.members.site)};
    case NodeKind::gradient_norm:
      return std::nullopt;
    case NodeKind::optimizer:
      return Look{LaneKind::compute, BarKind::update, "optimizer"};
  }
  return std::nullopt;
}

}  // namespace

std::vector<bool> critical_nodes(const schedule::Timeline& timeline) {
  constexpr double kNoise = 1e-9;  // of the step: sums along different paths round differently
  std::vector<bool> critical;
  critical.reserve(timeline.nodes.size());
  for (const schedule::Seconds slack : schedule::slack_of(timeline)) {
    critical.push_back(slack <= kNoise * timeline.step);
  }
  return critical;
}

StepBars predicted_bars(const StepPlan& plan) {
  const std::vector<bool> critical = critical_nodes(plan.timeline);
  const CompressedTransfers compressed(plan, plan.compression.back().from_step);
  StepBars step{.seconds = plan.timeline.step.value};
  step.bars.reserve(plan.timeline.nodes.size());
  for (std::size_t id = 0; id < plan.timeline.nodes.size(); ++id) {
    const TimelineNode& node = plan.timeline.nodes[id];
    const std::optional<Look> look = look_of(plan.schedule, node);
    if (!look || is_empty_part(node)) {
      continue;
    }
    step.bars.push_back(
        {.rank = node.rank,
         .lane = look->lane,
         .kind = look->kind,
         .start = node.start.value,
         .end = node.end.value,
         .label = look->name,
         .title = fmt::format("{}: {}", look->name, seconds_text(node.duration().value)),
         .critical = critical[id],
         .compressed = compressed.contains(node)});
  }
  return step;
}

}  // namespace slackline::report
