#include "parallel/schedule/retiming.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "parallel/schedule/timeline_graph.h"

namespace slackline::schedule {

namespace {

constexpr int kFixed = -1;  // of no class that changes
constexpr int kNone = -1;
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
    std::array<int, 2> resources{kNoResource, kNoResource};
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
    std::array<int, 2> behind{kNone, kNone};  // positions of what its resources served before it
  };

  std::vector<Node> nodes;
  std::vector<FromEdge> edges;  // but for those of service, which follow from the nodes' order
  int num_resources = 0;
  mutable std::vector<Times> times;      // of the last call
  mutable std::vector<int> last_served;  // scratch: a position for each resource

  [[nodiscard]] static const ClassCost& cost_of(const Node& node,
                                                const std::vector<ClassCost>& of_classes);

  // When the node at `position` starts and is behind what, by all nodes before it.
  void start(std::size_t position, std::size_t first_edge, const ClassCost& cost) const;
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
  graph_->num_resources = made.num_resources;
  for (const int id : timeline.order) {
    const GraphNode& node = made.nodes[index(id)];
    Graph::Node& copied =
        graph_->nodes.emplace_back(Graph::Node{.timing = node.timing, .resources = node.resources});
    if (node.has_codec) {
      const auto found = std::find(classes.begin(), classes.end(), node.node.members);
      copied.of_class = found == classes.end() ? kFixed : static_cast<int>(found - classes.begin());
      copied.cost = class_cost(costs, node.node.members);
    }
    for (const Edge& edge : node.node.after) {
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
  return before.end + (edge.kind == EdgeKind::encode ? cost.encode.value : edge.lag.value);
}

}  // namespace

const ClassCost& Retiming::Graph::cost_of(const Node& node,
                                          const std::vector<ClassCost>& of_classes) {
  return node.of_class == kFixed ? node.cost : of_classes[index(node.of_class)];
}

void Retiming::Graph::start(std::size_t position,
                            std::size_t first_edge,
                            const ClassCost& cost) const {
  const Node& node = nodes[position];
  Times& own = times[position];
  own = {};
  for (std::size_t edge = first_edge; edge < index(node.last_edge); ++edge) {
    own.start =
        std::max(own.start, allowed_start(times[index(edges[edge].from)], edges[edge], cost));
  }
  const double service = node.timing.service(cost).value;
  for (std::size_t i = 0; service > 0.0 && i < node.resources.size(); ++i) {
    if (node.resources[i] == kNoResource) {
      continue;
    }
    int& served = last_served[index(node.resources[i])];
    own.behind[i] = std::exchange(served, static_cast<int>(position));
    if (own.behind[i] != kNone) {
      own.start = std::max(own.start, times[index(own.behind[i])].free);
    }
  }
  own.free = own.start + service;
  own.end = own.start + node.timing.duration(cost).value;
}

Seconds Retiming::step(const std::vector<ClassCost>& of_classes) const {
  graph_->last_served.assign(index(graph_->num_resources), kNone);
  double step = 0.0;
  std::size_t edge = 0;
  for (std::size_t i = 0; i < graph_->nodes.size(); ++i) {
    const Graph::Node& node = graph_->nodes[i];
    graph_->start(i, edge, Graph::cost_of(node, of_classes));
    edge = index(node.last_edge);
    step = std::max(step, graph_->times[i].end);
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
    for (const int behind : times[i].behind) {
      if (behind != kNone) {
        const double play = times[i].start - times[index(behind)].free;
        slack[index(behind)] = std::min(slack[index(behind)], slack[i] + play);
      }
    }
  }
  return classes;
}

}  // namespace slackline::schedule
