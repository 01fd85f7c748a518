#include "tools/plan/decided_groups.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "core/error.h"
#include "parallel/mesh/mesh.h"
#include "parallel/predict/collective_ways.h"

namespace slackline {

namespace {

std::string ways_text(const Hierarchy& hierarchy, int ranks) {
  if (hierarchy.is_flat() || hierarchy.num_groups(ranks) == 1) {
    return "direct";
  }
  std::string text = fmt::format("through groups of {} ranks,", hierarchy.ranks_in_group);
  const std::size_t overlapped = hierarchy.overlapped_from;
  if (hierarchy.sequential_from < overlapped) {
    text += fmt::format(" sequential from {} bytes on", hierarchy.sequential_from);
  }
  if (overlapped != Hierarchy::kNever) {
    text += fmt::format("{} overlapped from {} bytes on",
                        hierarchy.sequential_from < overlapped ? "," : "",
                        overlapped);
  }
  return text;
}

// Counts the ranks of a data axis on each of several nodes, one node's after another's; 1 where
// they stand otherwise.
int data_ranks_of_node(const ParallelConfig& config, const std::vector<int>& nodes) {
  const std::vector<int> line = make_mesh(config).line(0, "data");
  const auto node_at = [&](std::size_t i) { return nodes.at(static_cast<std::size_t>(line[i])); };
  std::size_t run = 1;
  while (run < line.size() && node_at(run) == node_at(0)) {
    ++run;
  }
  if (run == line.size() || line.size() % run != 0) {
    return 1;
  }
  for (std::size_t i = run; i < line.size(); ++i) {
    const bool starts = i % run == 0;
    if ((node_at(i) == node_at(i - 1)) == starts) {
      return 1;
    }
  }
  return static_cast<int>(run);
}

}  // namespace

int fewest_ranks_of_node(const std::vector<int>& nodes_of_ranks) {
  std::map<int, int> ranks;
  for (const int node : nodes_of_ranks) {
    ++ranks[node];
  }
  const auto fewest =
      std::ranges::min_element(ranks, {}, [](const auto& node) { return node.second; });
  return fewest == ranks.end() ? 0 : fewest->second;
}

int fewest_ranks_of_node(const Cluster& links, const PlanJob& job) {
  const int ranks = job.num_workers * job.mesh.parallel.num_ranks();
  return fewest_ranks_of_node(links.nodes_of_ranks(std::min(ranks, links.num_devices())));
}

ParallelConfig with_decided_groups(const PlanJob& job, const LinkSpeeds& links) {
  const CollectivesWish wish = job.network.collectives;
  ParallelConfig parallel = job.mesh.parallel;
  if (links) {
    parallel = with_groups_of_nodes(parallel, wish, fewest_ranks_of_node(*links, job));
  }
  return with_collectives(parallel, wish, links);
}

void require_groups(const ParallelConfig& config, CollectivesWish wish) {
  if (wish == CollectivesWish::hierarchical && !config.has_groups_of_ranks()) {
    throw ConfigError(fmt::format(
        "network.collectives: must be \"auto\" or \"direct\" unless data ranks form several groups "
        "of several ranks; {} data ranks stand in groups of {} (parallel.group, or the data ranks "
        "of a node); got \"hierarchical\"",
        config.data,
        config.data_ranks_of_group()));
  }
}

std::string direct_sums_hint(const ParallelConfig& config,
                             CollectivesWish wish,
                             const std::vector<int>& nodes) {
  const bool is_direct = wish == CollectivesWish::automatic && !config.groups_apart &&
                         !config.data_strategy.has_groups() && !config.sums_by_levels() &&
                         config.data_hierarchy().is_flat();
  const int of_node = is_direct ? data_ranks_of_node(config, nodes) : 1;
  const ParallelConfig through =
      with_groups_of_nodes(config, CollectivesWish::hierarchical, fewest_ranks_of_node(nodes));
  // With pipelines groups may stand otherwise.
  if (of_node == 1 || through.data_ranks_of_group() != of_node) {
    return "";
  }
  return fmt::format(
      "sums over {} data ranks go directly between nodes, whose links are not known; --set "
      "network.collectives=hierarchical sends {} times fewer bytes there, and adds in another "
      "order",
      config.data,
      of_node);
}

std::string collectives_text(const ParallelConfig& config, bool tied_table) {
  std::string text = fmt::format("sums and gathers over {} data ranks: {}\n",
                                 config.data,
                                 ways_text(config.data_hierarchy(), config.data));
  if (config.pipeline > 1 && tied_table) {
    text += fmt::format("of a tied table, over {} ranks: {}\n",
                        2 * config.data,
                        ways_text(config.table_hierarchy(), 2 * config.data));
  }
  return text;
}

}  // namespace slackline
