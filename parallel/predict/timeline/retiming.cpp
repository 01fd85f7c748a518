#include "parallel/predict/timeline/retiming.h"

#include <algorithm>
#include <cstddef>

namespace slackline::schedule {

namespace {

constexpr double kRounding = 1e-12;

// Keeps the timeline's order of ops and of the messages they wait for. Late nodes have none.
GraphTimes times_in_order(const Graph& graph,
                          const CostModel& costs,
                          const std::vector<TransferClass>& classes) {
  GraphTimes timeline(graph, costs);
  timeline.run({});
  std::vector<int> order = timeline.order();
  std::erase_if(order, [&](int id) { return is_late(graph.nodes[index(id)].node.kind); });
  return {graph, costs, classes, order};
}

}  // namespace

Retiming::Retiming(const Schedule& schedule,
                   const CostModel& costs,
                   const std::vector<TransferClass>& classes)
    : times_(times_in_order(make_graph(schedule, costs), costs, classes)) {}

Seconds Retiming::step(const std::vector<ClassCost>& of_classes) const {
  step_ = times_.run(of_classes);
  return step_;
}

std::vector<bool> Retiming::critical(const std::vector<ClassCost>& of_classes) const {
  const std::vector<GraphTimes::Times>& times = times_.times();
  std::vector<Seconds> slack;
  slack.reserve(times.size());
  for (const GraphTimes::Times& node : times) {
    slack.push_back(step_ - node.end);
  }
  std::vector<bool> classes(of_classes.size(), false);
  for (auto position = times_.order().rbegin(); position != times_.order().rend(); ++position) {
    const std::size_t i = index(*position);
    const GraphTimes::Node& node = times_.nodes()[i];
    if (slack[i] > kRounding * step_) {
      continue;  // nothing before it is critical by it
    }
    if (node.of_class != GraphTimes::kNone) {
      classes[index(node.of_class)] = true;
    }
    const auto bind = [&](int before, Seconds allowed) {
      slack[index(before)] = std::min(slack[index(before)], slack[i] + (times[i].start - allowed));
    };
    const ClassCost& cost = GraphTimes::cost_of(node, of_classes);
    for (int edge = node.first_edge; edge < node.last_edge; ++edge) {
      const Edge& from = times_.edges()[index(edge)];
      bind(from.from, times_.allowed_start(from, cost));
    }
    for (const int behind : times[i].behind) {
      if (behind != GraphTimes::kNone) {
        bind(behind, times[index(behind)].free);
      }
    }
  }
  return classes;
}

}  // namespace slackline::schedule
