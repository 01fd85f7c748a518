#include "parallel/predict/collective_ways.h"

#include <algorithm>
#include <vector>

#include "parallel/predict/collective_times.h"

namespace slackline {

namespace {

using schedule::Seconds;
using Way = Hierarchy::Way;

// Smaller tensors take latencies alone, of which the direct way has the fewest; larger ones go as
// the largest does.
constexpr std::size_t kSmallest = 2 * kGatherBytes;
constexpr std::size_t kLargest = std::size_t{1} << 30U;
// Below about this size the exchanges that overlapping adds cost more than it hides: an estimate
// for latencies of 20 us between nodes and 5 us inside, where links are not known.
constexpr std::size_t kOverlappedUnasked = std::size_t{8} << 20U;

Seconds slowest(const std::vector<CollectiveLinks>& places, const CollectiveCall& call, Way way) {
  Seconds seconds{};
  for (const CollectiveLinks& links : places) {
    seconds = std::max(seconds, times_of(links, call, way).seconds());
  }
  return seconds;
}

// Ties go to the way with fewer exchanges.
Way fastest_way(const std::vector<CollectiveLinks>& places,
                const CollectiveCall& call,
                CollectivesWish wish) {
  Way fastest = wish == CollectivesWish::hierarchical ? Way::sequential : Way::direct;
  for (const Way way : {Way::sequential, Way::overlapped}) {
    if (slowest(places, call, way) < slowest(places, call, fastest)) {
      fastest = way;
    }
  }
  return fastest;
}

// The sizes from which on each way takes least, to the next power of two, where the slowest of
// `places` counts. Hierarchical leaves out the direct way.
GroupWays fastest_ways(const std::vector<CollectiveLinks>& places,
                       int ranks_in_group,
                       CollectivesWish wish) {
  GroupWays ways;
  for (std::size_t bytes = kLargest; bytes >= kSmallest; bytes /= 2) {
    const Way way = fastest_way(places,
                                {.kind = TransferRecord::Kind::all_reduce,
                                 .elements = bytes / sizeof(float),
                                 .element_size = sizeof(float),
                                 .hierarchy = {.ranks_in_group = ranks_in_group}},
                                wish);
    if (way == Way::direct) {
      break;
    }
    const bool all_overlapped = ways.overlapped_from == ways.sequential_from;
    ways.sequential_from = bytes;
    if (way == Way::overlapped && all_overlapped) {
      ways.overlapped_from = bytes;
    }
  }
  if (wish == CollectivesWish::hierarchical) {
    ways.sequential_from = 0;
  }
  return ways;
}

}  // namespace

ParallelConfig with_collectives(ParallelConfig config,
                                CollectivesWish wish,
                                const LinkSpeeds& links) {
  if (config.ways) {
    return config;
  }
  config.ways.emplace();
  if (wish == CollectivesWish::direct || !config.has_groups_of_ranks()) {
    return config;
  }
  if (!links) {
    if (wish == CollectivesWish::hierarchical) {
      const GroupWays ways{.sequential_from = 0, .overlapped_from = kOverlappedUnasked};
      config.ways = {.data = ways, .table = ways};
    }
    return config;
  }
  std::vector<CollectiveLinks> places;
  places.reserve(static_cast<std::size_t>(config.pipeline));
  for (int place = 0; place < config.pipeline; ++place) {
    places.push_back(data_links(config, *links, place));
  }
  config.ways->data = fastest_ways(places, config.data_hierarchy().ranks_in_group, wish);
  if (config.pipeline > 1) {
    config.ways->table =
        fastest_ways({table_links(config, *links)}, config.table_hierarchy().ranks_in_group, wish);
  }
  return config;
}

}  // namespace slackline
