#include "parallel/predict/timeline/slack.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

namespace slackline::schedule {

namespace {

constexpr int kNone = -1;

// How long before `node` starts the edge would have let it.
Seconds play(const Timeline& timeline, const TimelineNode& node, const Edge& edge) {
  return node.start - (timeline.nodes[index(edge.from)].end + edge.lag);
}

using ClassRows = std::map<TransferClass, ClassSlack>;

// Returns the row of a class, whose slack is the least of what is added to it.
ClassSlack& row_with(ClassRows& rows, const TransferClass& members, Seconds slack) {
  ClassSlack& row =
      rows.try_emplace(members, ClassSlack{.members = members, .slack = slack}).first->second;
  row.slack = std::min(row.slack, slack);
  return row;
}

std::vector<ClassSlack> table_of(const ClassRows& rows) {
  std::vector<ClassSlack> table;
  std::ranges::transform(rows, std::back_inserter(table), &ClassRows::value_type::second);
  return table;
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
  const auto end_of = [](const TimelineNode& node) { return node.end.value; };
  int id = static_cast<int>(std::ranges::max_element(timeline.nodes, {}, end_of) -
                            timeline.nodes.begin());
  while (id != kNone) {
    path.push_back(id);
    const TimelineNode& node = timeline.nodes[index(id)];
    const auto binding = std::ranges::min_element(
        node.after, {}, [&](const Edge& edge) { return play(timeline, node, edge).value; });
    id = binding == node.after.end() ? kNone : binding->from;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<ClassSlack> class_slacks(const Timeline& timeline) {
  const std::vector<Seconds> slack = slack_of(timeline);
  ClassRows rows;
  for (std::size_t id = 0; id < timeline.nodes.size(); ++id) {
    const TimelineNode& node = timeline.nodes[id];
    if (!is_transfer(node.kind)) {
      continue;
    }
    ClassSlack& sum = row_with(rows, node.members, slack[id]);
    const bool ends = node.kind == NodeKind::transfer || node.part == NodePart::decode;
    sum.count += ends ? 1 : 0;
    sum.bytes += node.bytes;
    sum.seconds += ends ? node.end - node.ready : Seconds{};
  }
  return table_of(rows);
}

std::vector<ClassSlack> tensor_slacks(const Timeline& timeline,
                                      const Schedule& schedule,
                                      const CostModel& costs) {
  const std::vector<Seconds> slack = slack_of(timeline);
  ClassRows rows;
  std::size_t id = 0;  // of an op's node
  for (const std::vector<Op>& ops : schedule.ranks) {
    const std::vector<Phase> phases = phases_of(ops);
    for (std::size_t i = 0; i < ops.size(); ++i, ++id) {
      if (!is_compute(ops[i].kind)) {
        continue;
      }
      for (const TensorSums& sums : tensor_sums(costs, ops[i])) {
        ClassSlack& sum = row_with(rows, tensor_class(ops[i], phases[i]), slack[id]);
        sum.count += sums.count;
        sum.bytes += static_cast<std::size_t>(sums.count) * sums.bytes;
        sum.seconds += static_cast<double>(sums.count) * sums.each;
      }
    }
  }
  return table_of(rows);
}

}  // namespace slackline::schedule
