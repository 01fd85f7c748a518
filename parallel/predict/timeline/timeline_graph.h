#pragma once

#include <array>
#include <vector>

#include "parallel/predict/timeline/timeline.h"

namespace slackline::schedule {

inline constexpr int kNoResource = -1;

// What a node takes, as a function of the codec of a class: its own where it is a transfer, that of
// what it sends or uses where codecs take an op's compute.
struct NodeTiming {
  // Which of a once-a-step transfer's exchanges a node stands for. The second half of an odd number
  // has one more.
  enum class Half { none, both, first, second };

  Seconds fixed{};    // whatever the codec
  Seconds bytes{};    // on the link or the data axis, without a codec
  Seconds arrival{};  // after the link has served it
  Exchanges exchanges{};
  Half half = Half::none;
  double encode_share{};  // of a once-a-step class' seconds to encode
  double decode_share{};
  bool encodes = false;  // a message, itself
  bool decodes = false;

  // How long its resources are busy. A node whose resources are not does not wait for them.
  [[nodiscard]] Seconds service(const ClassCost& cost) const {
    return cost.share * bytes + encode_share * cost.encode + decode_share * cost.decode;
  }

  [[nodiscard]] int num_exchanges(const ClassCost& cost) const {
    if (half == Half::none) {
      return 0;
    }
    const Rounds& rounds = cost.rounds;
    const int all = rounds.plain * exchanges.plain + rounds.sums * exchanges.sum + rounds.gathers;
    return half == Half::both ? all : half == Half::first ? all / 2 : all - all / 2;
  }

  [[nodiscard]] Seconds duration(const ClassCost& cost) const {
    return fixed + service(cost) + arrival +
           static_cast<double>(num_exchanges(cost)) * exchanges.latency +
           (encodes ? cost.encode : Seconds{}) + (decodes ? cost.decode : Seconds{});
  }
};

// The part of a timeline that is known before its nodes have times; for GraphTimes and its users.
struct GraphNode {
  TimelineNode node{};
  NodeTiming timing{};
  bool has_codec = false;  // what it takes depends on that of node.members
  // The links, data axes and codecs it is served by, which serve one node at a time; none where
  // negative.
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
