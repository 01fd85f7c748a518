#pragma once

#include <vector>

#include "core/comm/links/cluster.h"
#include "parallel/plan/cost_model.h"

namespace slackline {

struct RankPair {
  int from = 0;
  int to = 0;
};

// The link as the slowest of these messages sees it when all of them, `bytes` long each, are sent
// at once: a link that several of them pass serves each with its share of the speed. Its ends are
// those of nodes, where their ranks share them. REQUIRES: ranks stand on the cluster. No messages:
// a link that takes no time.
[[nodiscard]] schedule::Link slowest_link(const Cluster& cluster,
                                          const std::vector<RankPair>& messages,
                                          double bytes);

}  // namespace slackline
