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

CollectiveLinks links_of(const Members& members,
                         const Hierarchy& hierarchy,
                         const Cluster& cluster) {
  const int size = static_cast<int>(members.front().size());
  const int m = hierarchy.ranks_in_group;
  CollectiveLinks links = direct_links(size, link_inside(members, cluster));
  if (hierarchy.num_groups(size) > 1) {
    links.inside =
        link_inside(members, cluster, [m](int from, int to) { return from / m == to / m; });
    links.to_group = link_inside(
        members, cluster, [m, size](int from, int to) { return to == (from + m) % size; });
    links.to_groups =
        link_inside(members, cluster, [m](int from, int to) { return from % m == to % m; });
  }
  return links;
}

CollectiveTimes message(const schedule::Link& link, double bytes) {
  return {.service = schedule::service_seconds(link, bytes), .latency = link.latency};
}

CollectiveTimes direct_times(const CollectiveLinks& links, const CollectiveCall& call) {
  const std::size_t bytes = call.elements * call.element_size;
  const auto all = static_cast<double>(bytes);
  const CollectiveTimes slice = message(links.direct, all / links.ranks);
  if (call.kind != Kind::all_reduce) {
    return slice;
  }
  if (exchanges_all(bytes, links.ranks)) {
    return message(links.direct, all);
  }
  return {.service = 2.0 * slice.service, .exchanges = 2, .latency = slice.latency};
}

// The messages of a reduce-scatter or a gather, of which an element has `size_between` bytes
// between groups: sequential, all slices inside the group at once, or else one.
struct GroupMessages {
  CollectiveTimes inside{};
  CollectiveTimes between{};

  [[nodiscard]] bool between_is_longer() const { return between.seconds() > inside.seconds(); }
};

GroupMessages messages_of(const CollectiveLinks& links,
                          const CollectiveCall& call,
                          Way way,
                          std::size_t size_between) {
  const bool sequential = way == Way::sequential;
  const double slice = static_cast<double>(call.elements) / links.ranks;
  const double inside_bytes = slice * static_cast<double>(call.element_size);
  return {
      .inside = message(links.inside,
                        (sequential ? call.hierarchy.num_groups(links.ranks) : 1) * inside_bytes),
      .between = message(sequential ? links.to_groups : links.to_group,
                         slice * static_cast<double>(size_between))};
}

CollectiveTimes half_times(const CollectiveLinks& links,
                           const CollectiveCall& call,
                           Way way,
                           std::size_t size_between) {
  const GroupMessages messages = messages_of(links, call, way, size_between);
  const auto& [inside, between] = messages;
  if (way == Way::sequential) {
    return {.service = inside.service + between.service,
            .exchanges = 2,
            .latency = 0.5 * (inside.latency + between.latency)};
  }
  const CollectiveTimes& longer = messages.between_is_longer() ? between : inside;
  const int g = call.hierarchy.num_groups(links.ranks);
  const double others = g - 1.0;
  return {.service = inside.service + others * longer.service,
          .exchanges = g,
          .latency = (1.0 / g) * (inside.latency + others * longer.latency)};
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

CollectiveTimes sum_of(const CollectiveTimes& a, const CollectiveTimes& b) {
  const int exchanges = a.exchanges + b.exchanges;
  return {.service = a.service + b.service,
          .exchanges = exchanges,
          .latency = (1.0 / exchanges) * (static_cast<double>(a.exchanges) * a.latency +
                                          static_cast<double>(b.exchanges) * b.latency)};
}

int end_of(const CollectiveLinks& links, const CollectiveCall& call) {
  const Way way = way_of(call, links.ranks);
  if (way == Way::direct) {
    return links.direct.ends[0];
  }
  const std::size_t size_between =
      call.kind == Kind::all_gather ? call.element_size : group_sum_size(call.element_size);
  const schedule::Link& link = way == Way::sequential ? links.to_groups : links.to_group;
  return messages_of(links, call, way, size_between).between_is_longer() ? link.ends[0] : -1;
}

}  // namespace slackline
