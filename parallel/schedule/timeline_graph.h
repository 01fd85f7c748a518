#pragma once

#include <array>
#include <vector>

#include "parallel/schedule/timeline.h"

namespace slackline::schedule {

inline constexpr int kNoResource = -1;

// What a node takes, as a function of the codec of a class: its own where it is a transfer, that of
// what it sends or uses where codecs take an op's compute.
struct NodeTiming {
  Seconds fixed{};       // whatever the codec
  Seconds bytes{};       // on the link or the data axis, without a codec
  Seconds round{};       // besides, on the axis, each time it exchanges
  Seconds arrival{};     // after the link has served it
  double codec_share{};  // of a once-a-step class' codec seconds
  bool encodes = false;  // a message, itself
  bool decodes = false;

  // How long its resources are busy.
  [[nodiscard]] Seconds service(const ClassCost& cost) const {
    return static_cast<double>(cost.rounds) * round + cost.share * bytes +
           codec_share * (cost.encode + cost.decode);
  }

  [[nodiscard]] Seconds duration(const ClassCost& cost) const {
    return fixed + service(cost) + arrival + (encodes ? cost.encode : Seconds{}) +
           (decodes ? cost.decode : Seconds{});
  }
};

// The part of a timeline that is known before it is simulated; private to the timeline and to what
// times it anew.
struct GraphNode {
  TimelineNode node{};
  NodeTiming timing{};
  bool has_codec = false;  // what it takes depends on that of node.members
  // The links and data axes it is served by, which serve one node at a time; none where negative.
  std::array<int, 2> resources{kNoResource, kNoResource};
};

struct Graph {
  std::vector<GraphNode> nodes;
  int num_resources = 0;
  std::vector<std::vector<int>> rank_ops;  // nodes of each rank's list, in order
};

// Edges of kind `encode` have no lag yet: it is the class'.
[[nodiscard]] Graph make_graph(const Schedule& schedule, const CostModel& costs);

}  // namespace slackline::schedule
