#include "parallel/schedule/retiming.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "parallel/schedule/timeline_graph.h"

namespace slackline::schedule {

namespace {

constexpr int kFixed = -1;  // of no class that changes

std::size_t index(int value) {
  return static_cast<std::size_t>(value);
}

}  // namespace

// Nodes in an order such that every edge points forward, and the edges of all of them in one list:
// a pass reads both from front to back.
struct Retiming::Graph {
  struct Node {
    NodeTiming timing{};
    ClassCost cost{};       // where its class does not change
    int of_class = kFixed;  // index of its class where it does
    int last_edge = 0;      // one past the end
  };

  struct FromEdge {
    int from{};  // position of a node
    Seconds lag{};
    EdgeKind kind{};
  };

  // When a node's resources are free again, and when it ends.
  struct Times {
    double free{};
    double end{};
  };

  std::vector<Node> nodes;
  std::vector<FromEdge> edges;
  mutable std::vector<Times> times;
};

Retiming::Retiming(const Schedule& schedule,
                   const CostModel& costs,
                   std::vector<TransferClass> classes)
    : graph_(std::make_unique<Graph>()) {
  const Timeline timeline = make_timeline(schedule, costs);
  const schedule::Graph made = make_graph(schedule, costs);
  std::vector<int> position(timeline.nodes.size());
  for (std::size_t i = 0; i < timeline.order.size(); ++i) {
    position[index(timeline.order[i])] = static_cast<int>(i);
  }
  graph_->nodes.reserve(timeline.nodes.size());
  graph_->times.resize(timeline.nodes.size());
  for (const int id : timeline.order) {
    const GraphNode& node = made.nodes[index(id)];
    Graph::Node& copied = graph_->nodes.emplace_back(Graph::Node{.timing = node.timing});
    if (node.has_codec) {
      const auto found = std::find(classes.begin(), classes.end(), node.node.members);
      copied.of_class = found == classes.end() ? kFixed : static_cast<int>(found - classes.begin());
      copied.cost = class_cost(costs, node.node.members);
    }
    for (const Edge& edge : timeline.nodes[index(id)].after) {
      graph_->edges.push_back(
          {.from = position[index(edge.from)], .lag = edge.lag, .kind = edge.kind});
    }
    copied.last_edge = static_cast<int>(graph_->edges.size());
  }
}

Retiming::~Retiming() = default;
Retiming::Retiming(Retiming&&) noexcept = default;
Retiming& Retiming::operator=(Retiming&&) noexcept = default;

Seconds Retiming::step(const std::vector<ClassCost>& of_classes) const {
  std::vector<Graph::Times>& times = graph_->times;
  double step = 0.0;
  std::size_t edge = 0;
  for (std::size_t i = 0; i < graph_->nodes.size(); ++i) {
    const Graph::Node& node = graph_->nodes[i];
    const ClassCost& cost = node.of_class == kFixed ? node.cost : of_classes[index(node.of_class)];
    double start = 0.0;
    for (; edge < index(node.last_edge); ++edge) {
      const Graph::FromEdge& from = graph_->edges[edge];
      const Graph::Times& before = times[index(from.from)];
      switch (from.kind) {
        case EdgeKind::data:
          start = std::max(start, before.end + from.lag.value);
          break;
        case EdgeKind::encode:
          start = std::max(start, before.end + cost.encode.value);
          break;
        case EdgeKind::service:
          start = std::max(start, before.free);
          break;
      }
    }
    times[i] = {.free = start + node.timing.service(cost).value,
                .end = start + node.timing.duration(cost).value};
    step = std::max(step, times[i].end);
  }
  return {step};
}

}  // namespace slackline::schedule
