#include "parallel/schedule/retiming.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "parallel/schedule/timeline_graph.h"

namespace slackline::schedule {

namespace {

constexpr int kFixed = -1;  // of no class that changes
constexpr double kRounding = 1e-12;

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

  struct Times {
    double start{};
    double free{};  // of its resources, again
    double end{};
  };

  std::vector<Node> nodes;
  std::vector<FromEdge> edges;
  mutable std::vector<Times> times;  // of the last call

  [[nodiscard]] static const ClassCost& cost_of(const Node& node,
                                                const std::vector<ClassCost>& of_classes);
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

namespace {

// When an edge lets its node start.
template <typename Times, typename FromEdge>
double allowed_start(const Times& before, const FromEdge& edge, const ClassCost& cost) {
  switch (edge.kind) {
    case EdgeKind::service:
      return before.free;
    case EdgeKind::encode:
      return before.end + cost.encode.value;
    case EdgeKind::data:
      break;
  }
  return before.end + edge.lag.value;
}

}  // namespace

const ClassCost& Retiming::Graph::cost_of(const Node& node,
                                          const std::vector<ClassCost>& of_classes) {
  return node.of_class == kFixed ? node.cost : of_classes[index(node.of_class)];
}

Seconds Retiming::step(const std::vector<ClassCost>& of_classes) const {
  std::vector<Graph::Times>& times = graph_->times;
  double step = 0.0;
  std::size_t edge = 0;
  for (std::size_t i = 0; i < graph_->nodes.size(); ++i) {
    const Graph::Node& node = graph_->nodes[i];
    const ClassCost& cost = Graph::cost_of(node, of_classes);
    double start = 0.0;
    for (; edge < index(node.last_edge); ++edge) {
      const Graph::FromEdge& from = graph_->edges[edge];
      start = std::max(start, allowed_start(times[index(from.from)], from, cost));
    }
    times[i] = {.start = start,
                .free = start + node.timing.service(cost).value,
                .end = start + node.timing.duration(cost).value};
    step = std::max(step, times[i].end);
  }
  return {step};
}

std::vector<bool> Retiming::critical(const std::vector<ClassCost>& of_classes) const {
  const std::vector<Graph::Times>& times = graph_->times;
  double step = 0.0;
  for (const Graph::Times& node : times) {
    step = std::max(step, node.end);
  }
  std::vector<double> slack;
  slack.reserve(times.size());
  for (const Graph::Times& node : times) {
    slack.push_back(step - node.end);
  }
  std::vector<bool> classes(of_classes.size(), false);
  for (std::size_t i = times.size(); i-- > 0;) {
    const Graph::Node& node = graph_->nodes[i];
    if (slack[i] > kRounding * step) {
      continue;  // nothing before it is critical by it
    }
    if (node.of_class != kFixed) {
      classes[index(node.of_class)] = true;
    }
    const ClassCost& cost = Graph::cost_of(node, of_classes);
    for (int edge = i == 0 ? 0 : graph_->nodes[i - 1].last_edge; edge < node.last_edge; ++edge) {
      const Graph::FromEdge& from = graph_->edges[index(edge)];
      const auto before = index(from.from);
      const double play = times[i].start - allowed_start(times[before], from, cost);
      slack[before] = std::min(slack[before], slack[i] + play);
    }
  }
  return classes;
}

}  // namespace slackline::schedule
