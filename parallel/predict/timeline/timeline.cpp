// Events in order of time. A node becomes ready when all nodes it comes after have a place on the
// clock; it then starts when its resources are free, if it keeps them busy at all, which binds it
// to the nodes they served last (an edge for each). An edge leads no earlier than the start of the
// node it comes from, so time never runs backwards, and the order in which nodes start is an order
// for every later pass.

#include "parallel/predict/timeline/timeline.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "parallel/predict/timeline/timeline_graph.h"

namespace slackline::schedule {

namespace {

constexpr int kNone = -1;

class Simulation {
 public:
  Simulation(Graph graph, const CostModel& costs)
      : graph_(std::move(graph)),
        takes_(taken(graph_, costs)),
        first_successor_(graph_.nodes.size() + 1, 0),
        missing_(graph_.nodes.size(), 0),
        last_served_(index(graph_.num_resources), kNone) {}

  [[nodiscard]] Timeline run() {
    connect();
    while (!events_.empty()) {
      const auto [time, id] = events_.top();
      events_.pop();
      place(id, time);
    }
    timeline_.nodes.reserve(graph_.nodes.size());
    for (GraphNode& node : graph_.nodes) {
      timeline_.step = std::max(timeline_.step, node.node.end);
      timeline_.nodes.push_back(std::move(node.node));
    }
    return std::move(timeline_);
  }

 private:
  // What nodes take under their classes' codecs.
  struct Taken {
    Seconds duration{};
    Seconds service{};
  };

  // Sets the lags of encoding on the way.
  [[nodiscard]] static std::vector<Taken> taken(Graph& graph, const CostModel& costs) {
    std::vector<Taken> list;
    list.reserve(graph.nodes.size());
    for (GraphNode& node : graph.nodes) {
      const ClassCost cost = node.has_codec ? cost_of_class(costs, node.node.members) : ClassCost{};
      list.push_back(
          {.duration = node.timing.duration(cost), .service = node.timing.service(cost)});
      for (Edge& edge : node.node.after) {
        edge.lag = edge.kind == EdgeKind::encode ? cost.encode : edge.lag;
      }
    }
    return list;
  }

  void connect() {
    for (const GraphNode& node : graph_.nodes) {
      for (const Edge& edge : node.node.after) {
        ++first_successor_[index(edge.from) + 1];
      }
    }
    std::partial_sum(first_successor_.begin(), first_successor_.end(), first_successor_.begin());
    successors_.resize(first_successor_.back());
    std::vector<std::size_t> next(first_successor_);
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      for (const Edge& edge : graph_.nodes[id].node.after) {
        successors_[next[index(edge.from)]++] = static_cast<int>(id);
        ++missing_[id];
      }
    }
    timeline_.order.reserve(graph_.nodes.size());
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (missing_[id] == 0) {
        events_.emplace(Seconds{}, static_cast<int>(id));
      }
    }
  }

  [[nodiscard]] Seconds earliest_start(const TimelineNode& node) const {
    Seconds start{};
    for (const Edge& edge : node.after) {
      start = std::max(start, graph_.nodes[index(edge.from)].node.end + edge.lag);
    }
    return start;
  }

  void place(int id, Seconds ready) {
    GraphNode& placed = graph_.nodes[index(id)];
    TimelineNode& node = placed.node;
    node.ready = ready;
    const bool served_at_all = takes_[index(id)].service > Seconds{};
    for (const int resource : placed.resources) {
      if (resource == kNoResource || !served_at_all) {
        continue;
      }
      int& served = last_served_[index(resource)];
      if (served != kNone) {
        const Taken& before = takes_[index(served)];
        node.after.push_back({served, before.service - before.duration, EdgeKind::service});
      }
      served = id;
    }
    node.start = std::max(ready, earliest_start(node));
    node.end = node.start + takes_[index(id)].duration;
    timeline_.order.push_back(id);
    for (std::size_t i = first_successor_[index(id)]; i < first_successor_[index(id) + 1]; ++i) {
      const int next = successors_[i];
      if (--missing_[index(next)] == 0) {
        events_.emplace(earliest_start(graph_.nodes[index(next)].node), next);
      }
    }
  }

  using Event = std::pair<Seconds, int>;

  Graph graph_;
  std::vector<Taken> takes_;                  // of each node
  std::vector<std::size_t> first_successor_;  // where each node's begin in successors_, and the end
  std::vector<int> successors_;
  std::vector<int> missing_;      // nodes it comes after that have no place yet
  std::vector<int> last_served_;  // by each resource
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Timeline timeline_;
};

// The node that held up `node` longest; it has one.
const TimelineNode& binding(const Timeline& timeline, const TimelineNode& node) {
  const Edge& edge =
      *std::max_element(node.after.begin(), node.after.end(), [&](const Edge& a, const Edge& b) {
        return timeline.nodes[index(a.from)].end + a.lag <
               timeline.nodes[index(b.from)].end + b.lag;
      });
  return timeline.nodes[index(edge.from)];
}

// Splits the idle time of a rank from `free` to `until` at the moment `awaited` was submitted.
void count_idle(RankTimes& times, const TimelineNode& awaited, Seconds free, Seconds until) {
  const Seconds idle = std::max(until - free, Seconds{});
  Seconds exposed{};
  if (is_transfer(awaited.kind)) {
    exposed = std::max(until - std::max(free, awaited.ready), Seconds{});
    times.exposed[static_cast<std::size_t>(awaited.members.site)] += exposed;
  }
  times.bubble += idle - exposed;
}

// When the last peer had submitted a transfer: its posts, without the encoding between them. The
// parts of a once-a-step transfer stand behind one another, and were submitted with the first.
void correct_ready(Timeline& timeline) {
  Seconds submitted{};
  for (TimelineNode& node : timeline.nodes) {
    if (node.kind != NodeKind::transfer && is_transfer(node.kind)) {
      submitted = node.part == NodePart::encode ? node.ready : submitted;
      node.ready = submitted;
    } else if (node.kind == NodeKind::transfer) {
      node.ready = {};
      for (const Edge& edge : node.after) {
        const TimelineNode& before = timeline.nodes[index(edge.from)];
        if (before.kind == NodeKind::op) {
          node.ready = std::max(node.ready, before.end);
        }
      }
    }
  }
}

// Counts the ops of a rank's list and returns when it ends.
Seconds count_ops(const Timeline& timeline, const std::vector<int>& list, RankTimes& times) {
  Seconds free{};
  for (const int id : list) {
    const TimelineNode& node = timeline.nodes[index(id)];
    if (!node.after.empty()) {
      count_idle(times, binding(timeline, node), free, node.start);
    }
    times.compute += node.duration();
    free = node.end;
  }
  return free;
}

// What comes after the ranks' lists, in order of time.
struct Tail {
  std::vector<int> transfers;
  std::vector<int> updates;
};

Tail tail_of(const Timeline& timeline) {
  Tail tail;
  for (const int id : timeline.order) {
    const NodeKind kind = timeline.nodes[index(id)].kind;
    if (kind == NodeKind::data_reduction || kind == NodeKind::embedding_sync) {
      tail.transfers.push_back(id);
    } else if (kind == NodeKind::gradient_norm || kind == NodeKind::optimizer) {
      tail.updates.push_back(id);
    }
  }
  return tail;
}

// Counts from the end of a rank's list to the end of the step: its buckets, the embedding sync, the
// wait for other ranks, the update, the wait for the slowest one.
void count_tail(
    const Timeline& timeline, const Tail& tail, int rank, Seconds free, RankTimes& times) {
  for (const int id : tail.transfers) {
    const TimelineNode& node = timeline.nodes[index(id)];
    if (node.rank == rank || node.peer == rank) {
      count_idle(times, node, free, node.end);
      free = std::max(free, node.end);
    }
  }
  for (const int id : tail.updates) {
    const TimelineNode& node = timeline.nodes[index(id)];
    if (node.rank == rank || node.kind == NodeKind::gradient_norm) {
      times.bubble += node.start - free;
      times.update += node.duration();
      free = node.end;
    }
  }
  times.bubble += timeline.step - free;
}

}  // namespace

Timeline make_timeline(const Schedule& schedule, const CostModel& costs) {
  Graph graph = make_graph(schedule, costs);
  const std::vector<std::vector<int>> rank_ops = graph.rank_ops;
  Timeline timeline = Simulation(std::move(graph), costs).run();
  correct_ready(timeline);
  const Tail tail = tail_of(timeline);
  for (int rank = 0; rank < schedule.num_ranks; ++rank) {
    RankTimes& times = timeline.ranks.emplace_back();
    const Seconds end = count_ops(timeline, rank_ops[index(rank)], times);
    count_tail(timeline, tail, rank, end, times);
  }
  return timeline;
}

double bubble_share(const Timeline& timeline) {
  if (timeline.step == Seconds{}) {
    return 0.0;
  }
  double share = 0.0;
  for (const RankTimes& times : timeline.ranks) {
    share += times.bubble / timeline.step;
  }
  return share / static_cast<double>(timeline.ranks.size());
}

bool is_transfer(NodeKind kind) {
  return kind == NodeKind::transfer || kind == NodeKind::data_reduction ||
         kind == NodeKind::embedding_sync || kind == NodeKind::parameter_gather;
}

bool is_empty_part(const TimelineNode& node) {
  return node.part != NodePart::whole && node.duration() == Seconds{};
}

}  // namespace slackline::schedule
