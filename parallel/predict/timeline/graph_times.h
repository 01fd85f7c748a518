#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "parallel/predict/timeline/timeline_graph.h"

namespace slackline::schedule {

// Gives the nodes of a graph their places on the clock. A node becomes ready when all nodes it
// comes after have a place; it then starts when its resources are free, if it keeps them busy at
// all, which binds it to the nodes they served last. An edge leads no earlier than the start of the
// node it comes from, so time never runs backwards.
//
// Nodes whose order is known stand first, in that order, and the edges of all of them in one list:
// a pass reads both from front to back. The others are served as they become ready, those that are
// ready together by number. Nodes are known by their positions. Where no order is given, these are
// the graph's numbers, and resources become free as a timeline's edges of service say, which count
// from a node's end. Where one is given, they do so at its start plus its service, which rounds
// once less.
class GraphTimes {
 public:
  static constexpr int kNone = -1;

  struct Node {
    NodeTiming timing{};
    ClassCost cost{};      // where its class does not change
    int of_class = kNone;  // index of its class where it does
    int first_edge = 0;
    int last_edge = 0;  // one past the end
    std::array<int, 2> resources{kNoResource, kNoResource};
  };

  struct Times {
    Seconds ready{};
    Seconds start{};
    Seconds end{};
    Seconds free{};                           // of its resources, again
    std::array<int, 2> behind{kNone, kNone};  // what its resources served before it
  };

  // `classes` are those whose costs run() gets. `in_order` are nodes that are served in this order,
  // and that come after none but each other.
  GraphTimes(const Graph& graph,
             const CostModel& costs,
             const std::vector<TransferClass>& classes = {},
             const std::vector<int>& in_order = {});

  // Returns the step with these costs of the classes, in their order.
  Seconds run(const std::vector<ClassCost>& of_classes);

  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }

  // Edges of all nodes, but for those of service, which times have; they come from positions.
  [[nodiscard]] const std::vector<Edge>& edges() const { return edges_; }

  // Returns the lag of edges of service from a node of this cost.
  [[nodiscard]] static Seconds service_lag(const Node& node, const ClassCost& cost) {
    return node.timing.service(cost) - node.timing.duration(cost);
  }

  [[nodiscard]] static const ClassCost& cost_of(const Node& node,
                                                const std::vector<ClassCost>& of_classes) {
    return node.of_class == kNone ? node.cost : of_classes[index(node.of_class)];
  }

  // Returns when an edge lets a node of this cost start.
  [[nodiscard]] Seconds allowed_start(const Edge& edge, const ClassCost& cost) const {
    return times_[index(edge.from)].end + (edge.kind == EdgeKind::encode ? cost.encode : edge.lag);
  }

  // These are the last run's.
  [[nodiscard]] const std::vector<Times>& times() const { return times_; }

  [[nodiscard]] const std::vector<int>& order() const { return order_; }  // in which nodes started

 private:
  void add(const GraphNode& node,
           const std::vector<int>& position,
           const CostModel& costs,
           const std::vector<TransferClass>& classes);
  void connect();
  [[nodiscard]] Seconds ready(const Node& node, const ClassCost& cost) const;
  void place(int position, Seconds ready, const ClassCost& cost);

  std::vector<Node> nodes_{};
  std::vector<Edge> edges_{};
  std::size_t num_ordered_;
  // Nodes without an order have their successors in successors_ from here on, up to the next one's
  // first; one more number ends the last one's.
  std::vector<std::size_t> first_successor_;
  std::vector<int> successors_{};
  std::vector<int> num_before_;  // of them, how many each comes after
  std::vector<Times> times_;
  std::vector<int> order_;
  // Scratch of run().
  std::vector<int> last_served_;  // by each resource
  std::vector<int> missing_{};    // of num_before_: those without a place yet
};

}  // namespace slackline::schedule
