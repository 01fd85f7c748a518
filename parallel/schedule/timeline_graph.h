#pragma once

#include <array>
#include <vector>

#include "parallel/schedule/timeline.h"

namespace slackline::schedule {

inline constexpr int kNoResource = -1;

// The part of a timeline that is known before it is simulated; private to timeline.cpp.
struct GraphNode {
  TimelineNode node{};
  Seconds duration{};
  Seconds service{};  // how long its resources are busy; at most its duration
  // The links and data axes it is served by, which serve one node at a time; none where negative.
  std::array<int, 2> resources{kNoResource, kNoResource};
};

struct Graph {
  std::vector<GraphNode> nodes;
  int num_resources = 0;
  std::vector<std::vector<int>> rank_ops;  // nodes of each rank's list, in order
};

[[nodiscard]] Graph make_graph(const Schedule& schedule, const CostModel& costs);

}  // namespace slackline::schedule
