#include "parallel/predict/collective_times.h"

#include "core/check.h"
#include "parallel/mesh/mesh.h"
#include "parallel/predict/axis_links.h"

namespace slackline {

namespace {

using schedule::Seconds;
using Kind = TransferRecord::Kind;
using Way = Hierarchy::Way;

// The members of every communicator of a kind, each list in the order of its ranks.
using Members = std::vector<std::vector<int>>;

enum class Between { everybody, ranks_of_group, same_place_of_next_group, same_places };

bool is_sent(Between between, int from, int to, const Hierarchy& hierarchy, int size) {
  const int m = hierarchy.ranks_in_group;
  const bool same_group = from / m == to / m;
  const bool same_place = from % m == to % m;
  switch (between) {
    case Between::everybody:
      return true;
    case Between::ranks_of_group:
      return same_group;
    case Between::same_place_of_next_group:
      return to == (from + m) % size;
    case Between::same_places:
      return same_place;
  }
  return false;
}

schedule::Link link_between(Between between,
                            const Members& members,
                            const Hierarchy& hierarchy,
                            const Cluster& cluster) {
  std::vector<RankPair> messages;
  for (const std::vector<int>& ranks : members) {
    const int size = static_cast<int>(ranks.size());
    for (int from = 0; from < size; ++from) {
      for (int to = 0; to < size; ++to) {
        if (from != to && is_sent(between, from, to, hierarchy, size)) {
          messages.push_back({.from = ranks[static_cast<std::size_t>(from)],
                              .to = ranks[static_cast<std::size_t>(to)]});
        }
      }
    }
  }
  return slowest_link(cluster, messages, kTypicalBytes);
}

CollectiveLinks links_of(const Members& members,
                         const Hierarchy& hierarchy,
                         const Cluster& cluster) {
  const auto between = [&](Between kind) {
    return link_between(kind, members, hierarchy, cluster);
  };
  CollectiveLinks links =
      direct_links(static_cast<int>(members.front().size()), between(Between::everybody));
  if (hierarchy.num_groups(links.ranks) > 1) {
    links.inside = between(Between::ranks_of_group);
    links.to_group = between(Between::same_place_of_next_group);
    links.to_groups = between(Between::same_places);
  }
  return links;
}

// One message, with what the link is busy for it.
struct MessageTimes {
  Seconds service{};
  Seconds latency{};

  [[nodiscard]] Seconds seconds() const { return service + latency; }
};

MessageTimes message(const schedule::Link& link, double bytes) {
  return {.service = {link.bytes_per_second > 0.0 ? bytes / link.bytes_per_second : 0.0},
          .latency = link.latency};
}

CollectiveTimes direct_times(const CollectiveLinks& links, const CollectiveCall& call) {
  const std::size_t bytes = call.elements * call.element_size;
  const auto all = static_cast<double>(bytes);
  const MessageTimes slice = message(links.direct, all / links.ranks);
  if (call.kind != Kind::all_reduce) {
    return {.service = slice.service, .latency = slice.latency};
  }
  if (exchanges_all(bytes, links.ranks)) {
    return {.service = message(links.direct, all).service, .latency = slice.latency};
  }
  return {.service = 2.0 * slice.service, .exchanges = 2, .latency = slice.latency};
}

// A reduce-scatter or a gather, of which an element has `size_between` bytes between groups.
CollectiveTimes half_times(const CollectiveLinks& links,
                           const CollectiveCall& call,
                           Way way,
                           std::size_t size_between) {
  const double slice = static_cast<double>(call.elements) / links.ranks;
  const double inside_bytes = slice * static_cast<double>(call.element_size);
  const double between_bytes = slice * static_cast<double>(size_between);
  const int g = call.hierarchy.num_groups(links.ranks);
  if (way == Way::sequential) {
    const MessageTimes inside = message(links.inside, g * inside_bytes);
    const MessageTimes between = message(links.to_groups, between_bytes);
    return {.service = inside.service + between.service,
            .exchanges = 2,
            .latency = 0.5 * (inside.latency + between.latency)};
  }
  const MessageTimes inside = message(links.inside, inside_bytes);
  const MessageTimes between = message(links.to_group, between_bytes);
  const MessageTimes& longer = between.seconds() > inside.seconds() ? between : inside;
  const double others = g - 1.0;
  return {.service = inside.service + others * longer.service,
          .exchanges = g,
          .latency = (1.0 / g) * (inside.latency + others * longer.latency)};
}

CollectiveTimes sum_of(const CollectiveTimes& a, const CollectiveTimes& b) {
  const int exchanges = a.exchanges + b.exchanges;
  return {.service = a.service + b.service,
          .exchanges = exchanges,
          .latency = (1.0 / exchanges) * (static_cast<double>(a.exchanges) * a.latency +
                                          static_cast<double>(b.exchanges) * b.latency)};
}

}  // namespace

CollectiveLinks data_links(const ParallelConfig& config, const Cluster& cluster, int place) {
  return links_of(lines_at(make_mesh(config), "data", place), config.data_hierarchy(), cluster);
}

CollectiveLinks table_links(const ParallelConfig& config, const Cluster& cluster) {
  const Mesh mesh = make_mesh(config);
  Members members = lines_at(mesh, "data", 0);
  for (std::vector<int>& line : members) {
    line = table_holders(mesh, line.front());
  }
  return links_of(members, config.table_hierarchy(), cluster);
}

CollectiveLinks direct_links(int ranks, const schedule::Link& link) {
  return {.ranks = ranks, .direct = link};
}

CollectiveTimes times_of(const CollectiveLinks& links, const CollectiveCall& call) {
  return times_of(links, call, way_of(call, links.ranks));
}

CollectiveTimes times_of(const CollectiveLinks& links, const CollectiveCall& call, Way way) {
  if (way == Way::direct) {
    return direct_times(links, call);
  }
  const auto half = [&](std::size_t size_between) {
    return half_times(links, call, way, size_between);
  };
  const std::size_t summed = group_sum_size(call.element_size);
  switch (call.kind) {
    case Kind::reduce_scatter:
      return half(summed);
    case Kind::all_gather:
      return half(call.element_size);
    case Kind::all_reduce:
      return sum_of(half(summed), half(call.element_size));
    default:
      break;
  }
  SL_CHECK(false, "the times of a " + std::string(name_of(call.kind)));
}

int end_of(const CollectiveLinks& links, const CollectiveCall& call) {
  const Way way = way_of(call, links.ranks);
  if (way == Way::direct) {
    return links.direct.ends[0];
  }
  const schedule::Link& link = way == Way::sequential ? links.to_groups : links.to_group;
  const int slices_inside = way == Way::sequential ? call.hierarchy.num_groups(links.ranks) : 1;
  const double slice = static_cast<double>(call.elements) / links.ranks;
  const double inside_bytes = slices_inside * slice * static_cast<double>(call.element_size);
  const std::size_t size_between =
      call.kind == Kind::all_gather ? call.element_size : group_sum_size(call.element_size);
  const Seconds between = message(link, slice * static_cast<double>(size_between)).seconds();
  return between > message(links.inside, inside_bytes).seconds() ? link.ends[0] : -1;
}

}  // namespace slackline
