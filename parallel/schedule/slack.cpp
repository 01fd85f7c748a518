#include "parallel/schedule/slack.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace slackline::schedule {

namespace {

constexpr int kNone = -1;

std::size_t index(int value) {
  return static_cast<std::size_t>(value);
}

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

Seconds step_with_delay(const Timeline& timeline, int delayed, Seconds delay) {
  std::vector<Seconds> ends(timeline.nodes.size());
  Seconds step{};
  for (const int id : timeline.order) {
    const TimelineNode& node = timeline.nodes[index(id)];
    Seconds start = node.after.empty() ? node.start : Seconds{};
    for (const Edge& edge : node.after) {
      start = std::max(start, ends[index(edge.from)] + edge.lag);
    }
    ends[index(id)] = start + node.duration() + (id == delayed ? delay : Seconds{});
    step = std::max(step, ends[index(id)]);
  }
  return step;
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
    ++sum.count;
    sum.bytes += node.bytes;
    sum.seconds += node.end - node.ready;
  }
  std::vector<ClassSlack> table;
  table.reserve(rows.size());
  for (const auto& [members, row] : rows) {
    table.push_back(row);
  }
  return table;
}

bool cuts_critical_paths(const Timeline& timeline,
                         const std::set<TransferClass>& classes,
                         Seconds tolerance) {
  // Whether a critical path that avoids the classes leads from the start of the step to the node.
  const std::vector<Seconds> slack = slack_of(timeline);
  std::vector<bool> reached(timeline.nodes.size(), false);
  for (const int id : timeline.order) {
    const TimelineNode& node = timeline.nodes[index(id)];
    if ((is_transfer(node.kind) && classes.contains(node.members)) ||
        slack[index(id)] > tolerance) {
      continue;
    }
    reached[index(id)] = node.after.empty();
    for (const Edge& edge : node.after) {
      if (reached[index(edge.from)] && play(timeline, node, edge) <= tolerance) {
        reached[index(id)] = true;
      }
    }
    if (reached[index(id)] && timeline.step - node.end <= tolerance) {
      return false;
    }
  }
  return true;
}

}  // namespace slackline::schedule
