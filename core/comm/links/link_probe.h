#pragma once

#include "core/comm/communicator.h"
#include "core/comm/links/cluster.h"

namespace slackline {

// Measures links as this world's transfers see them, and returns the same on every rank: between
// two ranks of the first node that has two, and between ranks of the first two nodes. Latency is
// half of the quickest round trip of a small message; speed that of large ones; duplex, whether
// both directions at once take no longer than one; shared by a node, whether several pairs of ranks
// at once take longer than one pair. Where a world has only one kind of link the other is taken to
// be the same. Blocks, for some hundred latencies and the time of ten messages of 20 ms or 8 MiB.
// Nothing else may travel meanwhile. A Cluster has ranks on its nodes in rank order: where a
// launcher deals ranks out to nodes in turn, links are right and nodes_of_ranks() is not.
[[nodiscard]] Cluster probe_links(Communicator& world);

}  // namespace slackline
