#include "parallel/predict/timeline/slack.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace slackline::schedule {

namespace {

constexpr int kNone = -1;

// How long before `node` starts the edge would have let it.
Seconds play(const Timeline& timeline, const TimelineNode& node, const Edge& edge) {
  return node.start - (timeline.nodes[index(edge.from)].end + edge.lag);
}

}  // namespace

std::vector<Seconds> slack_of(const Timeline& timeline) {
  // Relative to the end: how much room the node has before the first successor is held up too far.
  std::vector<Seconds> slack;
  slack.reserve(timeline.nodes.size());
  for (const TimelineNode& node : timeline.nodes) {
    slack.push_back(timeline.step - node.end);
  }
  for (auto id = timeline.order.rbegin(); id != timeline.order.rend(); ++id) {
    const TimelineNode& node = timeline.nodes[index(*id)];
    for (const Edge& edge : node.after) {
      Seconds& before = slack[index(edge.from)];
      before = std::min(before, slack[index(*id)] + play(timeline, node, edge));
    }
  }
  return slack;
}

std::vector<int> critical_path(const Timeline& timeline) {
  std::vector<int> path;
  int id = static_cast<int>(
      std::max_element(timeline.nodes.begin(),
                       timeline.nodes.end(),
                       [](const auto& a, const auto& b) { return a.end < b.end; }) -
      timeline.nodes.begin());
  while (id != kNone) {
    path.push_back(id);
    const TimelineNode& node = timeline.nodes[index(id)];
    const auto binding =
        std::min_element(node.after.begin(), node.after.end(), [&](const Edge& a, const Edge& b) {
          return play(timeline, node, a) < play(timeline, node, b);
        });
    id = binding == node.after.end() ? kNone : binding->from;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<ClassSlack> class_slacks(const Timeline& timeline) {
  const std::vector<Seconds> slack = slack_of(timeline);
  std::map<TransferClass, ClassSlack> rows;
  for (std::size_t id = 0; id < timeline.nodes.size(); ++id) {
    const TimelineNode& node = timeline.nodes[id];
    if (!is_transfer(node.kind)) {
      continue;
    }
    const auto [row, added] = rows.try_emplace(node.members, ClassSlack{.members = node.members});
    ClassSlack& sum = row->second;
    sum.slack = added ? slack[id] : std::min(sum.slack, slack[id]);
    const bool ends = node.kind == NodeKind::transfer || node.part == NodePart::decode;
    sum.count += ends ? 1 : 0;
    sum.bytes += node.bytes;
    sum.seconds += ends ? node.end - node.ready : Seconds{};
  }
  std::vector<ClassSlack> table;
  table.reserve(rows.size());
  for (const auto& [members, row] : rows) {
    table.push_back(row);
  }
  return table;
}

std::vector<ClassSlack> tensor_slacks(const Timeline& timeline,
                                      const Schedule& schedule,
                                      const CostModel& costs) {
  const std::vector<Seconds> slack = slack_of(timeline);
  std::map<TransferClass, ClassSlack> rows;
  // A rank's ops stand in the timeline in the order of its list.
  std::vector<std::size_t> next(schedule.ranks.size(), 0);
  std::vector<std::vector<Phase>> phases;
  for (const std::vector<Op>& ops : schedule.ranks) {
    phases.push_back(phases_of(ops));
  }
  for (std::size_t id = 0; id < timeline.nodes.size(); ++id) {
    const TimelineNode& node = timeline.nodes[id];
    if (node.kind != NodeKind::op) {
      continue;
    }
    const auto rank = static_cast<std::size_t>(node.rank);
    const std::vector<Op>& ops = schedule.ranks[rank];
    while (next[rank] < ops.size() && ops[next[rank]] != node.op) {
      ++next[rank];
    }
    if (next[rank] == ops.size() || !is_compute(node.op.kind)) {
      continue;
    }
    const TransferClass members = tensor_class(node.op, phases[rank][next[rank]]);
    for (const TensorSums& sums : tensor_sums(costs, node.op)) {
      const auto [row, added] = rows.try_emplace(members, ClassSlack{.members = members});
      ClassSlack& sum = row->second;
      sum.slack = added ? slack[id] : std::min(sum.slack, slack[id]);
      sum.count += sums.count;
      sum.bytes += static_cast<std::size_t>(sums.count) * sums.bytes;
      sum.seconds += static_cast<double>(sums.count) * sums.each;
    }
  }
  std::vector<ClassSlack> table;
  table.reserve(rows.size());
  for (const auto& [members, row] : rows) {
    table.push_back(row);
  }
  return table;
}

}  // namespace slackline::schedule
