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

bool has_class(const TimelineNode& node) {
  return node.kind != NodeKind::op && node.kind != NodeKind::gradient_norm &&
         node.kind != NodeKind::optimizer;
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

TransferClass class_of(const Schedule& schedule, const TimelineNode& node) {
  if (node.kind != NodeKind::transfer) {
    return {site_of(node), node.op.chunk, Phase::step};
  }
  const std::vector<Op>& ops = schedule.ranks[index(node.rank)];
  const auto position = std::find(ops.begin(), ops.end(), node.op) - ops.begin();
  return {site_of(node), node.op.chunk, phases_of(ops)[static_cast<std::size_t>(position)]};
}

namespace {

// The class of every node that has one, each rank's phases worked out once.
std::map<int, TransferClass> classes_of(const Schedule& schedule, const Timeline& timeline) {
  std::map<TransferId, Phase> phases;
  for (const std::vector<Op>& ops : schedule.ranks) {
    const std::vector<Phase> of_ops = phases_of(ops);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (is_send(ops[i].kind)) {
        phases[id_of_send(ops[i])] = of_ops[i];
      }
    }
  }
  std::map<int, TransferClass> classes;
  for (std::size_t id = 0; id < timeline.nodes.size(); ++id) {
    const TimelineNode& node = timeline.nodes[id];
    if (has_class(node)) {
      const bool sent = node.kind == NodeKind::transfer;
      const Phase phase = sent ? phases.at(id_of_send(node.op)) : Phase::step;
      classes[static_cast<int>(id)] = {site_of(node), node.op.chunk, phase};
    }
  }
  return classes;
}

}  // namespace

std::vector<ClassSlack> class_slacks(const Schedule& schedule, const Timeline& timeline) {
  const std::vector<Seconds> slack = slack_of(timeline);
  std::map<TransferClass, ClassSlack> rows;
  for (const auto& [id, members] : classes_of(schedule, timeline)) {
    const TimelineNode& node = timeline.nodes[index(id)];
    const auto [row, added] = rows.try_emplace(members, ClassSlack{.members = members});
    ClassSlack& sum = row->second;
    sum.slack = added ? slack[index(id)] : std::min(sum.slack, slack[index(id)]);
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

bool cuts_critical_paths(const Schedule& schedule,
                         const Timeline& timeline,
                         const std::set<TransferClass>& classes,
                         Seconds tolerance) {
  const std::map<int, TransferClass> of_nodes = classes_of(schedule, timeline);
  // Whether a critical path that avoids the classes leads from the start of the step to the node.
  const std::vector<Seconds> slack = slack_of(timeline);
  std::vector<bool> reached(timeline.nodes.size(), false);
  for (const int id : timeline.order) {
    const TimelineNode& node = timeline.nodes[index(id)];
    const auto found = of_nodes.find(id);
    if ((found != of_nodes.end() && classes.contains(found->second)) ||
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
