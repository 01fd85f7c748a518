#include "parallel/predict/timeline/retiming.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/predict/timeline/timeline_graph.h"

namespace slackline::schedule {

namespace {

constexpr int kFixed = -1;  // of no class that changes
constexpr int kNone = -1;
constexpr double kRounding = 1e-12;

}  // namespace

// Nodes of ops and messages stand first, in an order such that every edge points forward, and the
// edges of all of them in one list: a pass reads both from front to back. What follows the ranks'
// lists at the end of a step (buckets, the embedding sync, the update) comes after them. No op
// waits for these late nodes, so they are served anew in order of readiness, as by the timeline.
struct Retiming::Graph {
  struct Node {
    NodeTiming timing{};
    ClassCost cost{};       // where its class does not change
    int of_class = kFixed;  // index of its class where it does
    int id = 0;             // in the timeline
    int first_edge = 0;
    int last_edge = 0;  // one past the end
    std::array<int, 2> resources{kNoResource, kNoResource};
    std::vector<int> successors{};  // of a late node: positions
    int num_late = 0;               // of a late node: those before it
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
  std::size_t num_early = 0;
  std::vector<FromEdge> edges;  // but for those of service, which follow from the nodes' order
  int num_resources = 0;
  // These are the last call's; `last_served` and `missing` are scratch.
  mutable std::vector<Times> times;
  mutable std::vector<int> late_order;   // positions
  mutable std::vector<int> last_served;  // a position for each resource
  mutable std::vector<int> missing;      // of each late node: those before it without times

  void add(const GraphNode& node, int id, std::vector<int>& position);
  void connect_late();

  [[nodiscard]] static const ClassCost& cost_of(const Node& node,
                                                const std::vector<ClassCost>& of_classes);
  [[nodiscard]] double ready(const Node& node, const ClassCost& cost) const;

  // When the node at `position` starts and is behind what, by all nodes that have times.
  void start(int position, double ready, const ClassCost& cost) const;
  void serve_late(const std::vector<ClassCost>& of_classes) const;
};

namespace {

bool is_late(NodeKind kind) {
  return kind == NodeKind::data_reduction || kind == NodeKind::embedding_sync ||
         kind == NodeKind::gradient_norm || kind == NodeKind::optimizer;
}

}  // namespace

Retiming::Retiming(const Schedule& schedule,
                   const CostModel& costs,
                   std::vector<TransferClass> classes)
    : graph_(std::make_unique<Graph>()) {
  const Timeline timeline = make_timeline(schedule, costs);
  const schedule::Graph made = make_graph(schedule, costs);
  std::vector<int> position(timeline.nodes.size(), kNone);
  graph_->nodes.reserve(timeline.nodes.size());
  graph_->times.resize(timeline.nodes.size());
  graph_->num_resources = made.num_resources;
  for (const bool late : {false, true}) {
    for (const int id : timeline.order) {
      const GraphNode& node = made.nodes[index(id)];
      if (is_late(node.node.kind) != late) {
        continue;
      }
      graph_->add(node, id, position);
      if (node.has_codec) {
        Graph::Node& copied = graph_->nodes.back();
        const auto found = std::find(classes.begin(), classes.end(), node.node.members);
        copied.of_class =
            found == classes.end() ? kFixed : static_cast<int>(found - classes.begin());
        copied.cost = cost_of_class(costs, node.node.members);
      }
    }
    graph_->num_early = late ? graph_->num_early : graph_->nodes.size();
  }
  graph_->connect_late();
}

// REQUIRES: the nodes it comes after have been added.
void Retiming::Graph::add(const GraphNode& node, int id, std::vector<int>& position) {
  Node& copied =
      nodes.emplace_back(Node{.timing = node.timing, .id = id, .resources = node.resources});
  position[index(id)] = static_cast<int>(nodes.size()) - 1;
  copied.first_edge = static_cast<int>(edges.size());
  for (const Edge& edge : node.node.after) {
    edges.push_back({.from = position[index(edge.from)], .lag = edge.lag, .kind = edge.kind});
  }
  copied.last_edge = static_cast<int>(edges.size());
}

void Retiming::Graph::connect_late() {
  for (std::size_t i = num_early; i < nodes.size(); ++i) {
    for (int edge = nodes[i].first_edge; edge < nodes[i].last_edge; ++edge) {
      const auto from = index(edges[index(edge)].from);
      if (from >= num_early) {
        nodes[from].successors.push_back(static_cast<int>(i));
        ++nodes[i].num_late;
      }
    }
  }
  missing.resize(nodes.size());
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

double Retiming::Graph::ready(const Node& node, const ClassCost& cost) const {
  double ready = 0.0;
  for (int i = node.first_edge; i < node.last_edge; ++i) {
    const FromEdge& edge = edges[index(i)];
    ready = std::max(ready, allowed_start(times[index(edge.from)], edge, cost));
  }
  return ready;
}

void Retiming::Graph::start(int position, double ready, const ClassCost& cost) const {
  const Node& node = nodes[index(position)];
  Times own{.start = ready};
  const double service = node.timing.service(cost).value;
  for (std::size_t i = 0; service > 0.0 && i < node.resources.size(); ++i) {
    if (node.resources[i] == kNoResource) {
      continue;
    }
    own.behind[i] = std::exchange(last_served[index(node.resources[i])], position);
    if (own.behind[i] != kNone) {
      own.start = std::max(own.start, times[index(own.behind[i])].free);
    }
  }
  own.free = own.start + service;
  own.end = own.start + node.timing.duration(cost).value;
  times[index(position)] = own;
}

// Serves in order of readiness, and of the timeline's numbers where several are ready together.
void Retiming::Graph::serve_late(const std::vector<ClassCost>& of_classes) const {
  using Event = std::tuple<double, int, int>;  // time, id, position
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  const auto push = [&](int position) {
    const Node& node = nodes[index(position)];
    events.emplace(ready(node, cost_of(node, of_classes)), node.id, position);
  };
  for (std::size_t i = num_early; i < nodes.size(); ++i) {
    missing[i] = nodes[i].num_late;
    if (missing[i] == 0) {
      push(static_cast<int>(i));
    }
  }
  late_order.clear();
  while (!events.empty()) {
    const auto [time, id, position] = events.top();
    events.pop();
    const Node& node = nodes[index(position)];
    start(position, time, cost_of(node, of_classes));
    late_order.push_back(position);
    for (const int next : node.successors) {
      if (--missing[index(next)] == 0) {
        push(next);
      }
    }
  }
}

Seconds Retiming::step(const std::vector<ClassCost>& of_classes) const {
  graph_->last_served.assign(index(graph_->num_resources), kNone);
  for (std::size_t i = 0; i < graph_->num_early; ++i) {
    const Graph::Node& node = graph_->nodes[i];
    const ClassCost& cost = Graph::cost_of(node, of_classes);
    graph_->start(static_cast<int>(i), graph_->ready(node, cost), cost);
  }
  graph_->serve_late(of_classes);
  double step = 0.0;
  for (const Graph::Times& node : graph_->times) {
    step = std::max(step, node.end);
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
  for (std::size_t k = times.size(); k-- > 0;) {
    const std::size_t i =
        k < graph_->num_early ? k : index(graph_->late_order[k - graph_->num_early]);
    const Graph::Node& node = graph_->nodes[i];
    if (slack[i] > kRounding * step) {
      continue;  // nothing before it is critical by it
    }
    if (node.of_class != kFixed) {
      classes[index(node.of_class)] = true;
    }
    const ClassCost& cost = Graph::cost_of(node, of_classes);
    for (int edge = node.first_edge; edge < node.last_edge; ++edge) {
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
