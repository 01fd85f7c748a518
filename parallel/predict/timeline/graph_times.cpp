#include "parallel/predict/timeline/graph_times.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace slackline::schedule {

GraphTimes::GraphTimes(const Graph& graph,
                       const CostModel& costs,
                       const std::vector<TransferClass>& classes,
                       const std::vector<int>& in_order)
    : num_ordered_(in_order.size()),
      first_successor_(graph.nodes.size() + 1, 0),
      num_before_(graph.nodes.size(), 0),
      times_(graph.nodes.size()),
      order_(in_order.size()),
      last_served_(index(graph.num_resources), kNone) {
  std::vector<int> position(graph.nodes.size(), kNone);
  std::vector<int> ids(in_order);
  ids.reserve(graph.nodes.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    position[index(ids[i])] = static_cast<int>(i);
  }
  for (std::size_t id = 0; id < position.size(); ++id) {
    if (position[id] == kNone) {
      position[id] = static_cast<int>(ids.size());
      ids.push_back(static_cast<int>(id));
    }
  }
  nodes_.reserve(ids.size());
  std::size_t num_edges = 0;
  for (const GraphNode& node : graph.nodes) {
    num_edges += node.node.after.size();
  }
  edges_.reserve(num_edges);
  for (const int id : ids) {
    add(graph.nodes[index(id)], position, costs, classes);
  }
  connect();
  std::iota(order_.begin(), order_.end(), 0);
  order_.reserve(nodes_.size());
}

void GraphTimes::add(const GraphNode& node,
                     const std::vector<int>& position,
                     const CostModel& costs,
                     const std::vector<TransferClass>& classes) {
  Node& added = nodes_.emplace_back(Node{.timing = node.timing, .resources = node.resources});
  if (node.has_codec) {
    const auto found = std::find(classes.begin(), classes.end(), node.node.members);
    added.of_class = found == classes.end() ? kNone : static_cast<int>(found - classes.begin());
    added.cost = cost_of_class(costs, node.node.members);
  }
  added.first_edge = static_cast<int>(edges_.size());
  for (const Edge& edge : node.node.after) {
    edges_.push_back({.from = position[index(edge.from)], .lag = edge.lag, .kind = edge.kind});
  }
  added.last_edge = static_cast<int>(edges_.size());
}

void GraphTimes::connect() {
  const auto for_each_edge = [&](const auto& body) {
    for (std::size_t to = num_ordered_; to < nodes_.size(); ++to) {
      for (int i = nodes_[to].first_edge; i < nodes_[to].last_edge; ++i) {
        if (const std::size_t from = index(edges_[index(i)].from); from >= num_ordered_) {
          body(from, to);
        }
      }
    }
  };
  for_each_edge([&](std::size_t from, std::size_t to) {
    ++first_successor_[from + 1];
    ++num_before_[to];
  });
  std::partial_sum(first_successor_.begin(), first_successor_.end(), first_successor_.begin());
  successors_.resize(first_successor_.back());
  std::vector<std::size_t> next(first_successor_);
  for_each_edge(
      [&](std::size_t from, std::size_t to) { successors_[next[from]++] = static_cast<int>(to); });
}

Seconds GraphTimes::ready(const Node& node, const ClassCost& cost) const {
  Seconds ready{};
  for (int i = node.first_edge; i < node.last_edge; ++i) {
    ready = std::max(ready, allowed_start(edges_[index(i)], cost));
  }
  return ready;
}

void GraphTimes::place(int position, Seconds ready, const ClassCost& cost) {
  const Node& node = nodes_[index(position)];
  const Seconds service = node.timing.service(cost);
  Times own{.ready = ready, .start = ready};
  for (std::size_t i = 0; service > Seconds{} && i < node.resources.size(); ++i) {
    if (node.resources[i] == kNoResource) {
      continue;
    }
    own.behind[i] = std::exchange(last_served_[index(node.resources[i])], position);
    if (own.behind[i] != kNone) {
      own.start = std::max(own.start, times_[index(own.behind[i])].free);
    }
  }
  own.end = own.start + node.timing.duration(cost);
  own.free = num_ordered_ == 0 ? own.end + service_lag(node, cost) : own.start + service;
  times_[index(position)] = own;
}

Seconds GraphTimes::run(const std::vector<ClassCost>& of_classes) {
  last_served_.assign(last_served_.size(), kNone);
  for (std::size_t i = 0; i < num_ordered_; ++i) {
    const ClassCost& cost = cost_of(nodes_[i], of_classes);
    place(static_cast<int>(i), ready(nodes_[i], cost), cost);
  }
  using Event = std::pair<Seconds, int>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  const auto push = [&](int position) {
    const Node& node = nodes_[index(position)];
    events.emplace(ready(node, cost_of(node, of_classes)), position);
  };
  missing_ = num_before_;
  for (std::size_t i = num_ordered_; i < nodes_.size(); ++i) {
    if (missing_[i] == 0) {
      push(static_cast<int>(i));
    }
  }
  order_.resize(num_ordered_);
  while (!events.empty()) {
    const auto [time, position] = events.top();
    events.pop();
    place(position, time, cost_of(nodes_[index(position)], of_classes));
    order_.push_back(position);
    for (std::size_t i = first_successor_[index(position)];
         i < first_successor_[index(position) + 1];
         ++i) {
      if (--missing_[index(successors_[i])] == 0) {
        push(successors_[i]);
      }
    }
  }
  Seconds step{};
  for (const Times& node : times_) {
    step = std::max(step, node.end);
  }
  return step;
}

}  // namespace slackline::schedule
