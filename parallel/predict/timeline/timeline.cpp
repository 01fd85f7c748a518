#include "parallel/predict/timeline/timeline.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "parallel/predict/timeline/graph_times.h"

namespace slackline::schedule {

namespace {

// An edge of service counts from a node's end: its lag, below zero, is how much earlier the node's
// resources were free.
Timeline timeline_of(Graph graph, const CostModel& costs) {
  GraphTimes times(graph, costs);
  Timeline timeline;
  timeline.step = times.run({});
  timeline.order = times.order();
  timeline.nodes.reserve(graph.nodes.size());
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    TimelineNode& node = timeline.nodes.emplace_back(std::move(graph.nodes[id].node));
    const GraphTimes::Times& own = times.times()[id];
    const Seconds encode = times.nodes()[id].cost.encode;
    node.ready = own.ready;
    node.start = own.start;
    node.end = own.end;
    for (Edge& edge : node.after) {
      edge.lag = edge.kind == EdgeKind::encode ? encode : edge.lag;
    }
    for (const int before : own.behind) {
      if (before != GraphTimes::kNone) {
        const GraphTimes::Node& served = times.nodes()[index(before)];
        node.after.push_back(
            {before, GraphTimes::service_lag(served, served.cost), EdgeKind::service});
      }
    }
  }
  return timeline;
}

// The node that held up `node` longest; it has one.
const TimelineNode& binding(const Timeline& timeline, const TimelineNode& node) {
  const auto allowed = [&](const Edge& edge) {
    return (timeline.nodes[index(edge.from)].end + edge.lag).value;
  };
  return timeline.nodes[index(std::ranges::max_element(node.after, {}, allowed)->from)];
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

// Counts from the end of a rank's list to the end of the step: its buckets, the embedding sync, the
// wait for other ranks, the update, the wait for the slowest one.
void count_tail(const Timeline& timeline,
                const std::vector<int>& tail,
                int rank,
                Seconds free,
                RankTimes& times) {
  for (const int id : tail) {
    const TimelineNode& node = timeline.nodes[index(id)];
    if (is_transfer(node.kind)) {
      if (node.rank == rank || node.peer == rank) {
        count_idle(times, node, free, node.end);
        free = std::max(free, node.end);
      }
    } else if (node.rank == rank || node.kind == NodeKind::gradient_norm) {
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
  Timeline timeline = timeline_of(std::move(graph), costs);
  correct_ready(timeline);
  std::vector<int> tail;  // in order of time: transfers, then the update, which waits for them
  std::ranges::copy_if(timeline.order, std::back_inserter(tail), [&](int id) {
    return is_late(timeline.nodes[index(id)].kind);
  });
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

bool is_late(NodeKind kind) {
  return kind == NodeKind::data_reduction || kind == NodeKind::embedding_sync ||
         kind == NodeKind::gradient_norm || kind == NodeKind::optimizer;
}

bool is_empty_part(const TimelineNode& node) {
  return node.part != NodePart::whole && node.duration() == Seconds{};
}

}  // namespace slackline::schedule
