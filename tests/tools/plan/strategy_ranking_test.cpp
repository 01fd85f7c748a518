// The ranking of data strategies, and what "auto" takes of it.

#include "tools/plan/strategy_ranking.h"

#include <algorithm>
#include <set>
#include <string>

#include "parallel/predict/assumed_costs.h"
#include "tests/support/catch.h"
#include "tools/plan/memory_plan.h"

namespace slackline {

namespace {

// Eight data ranks on nodes of four.
PlanJob job_of(int data = 8) {
  PlanJob job;
  job.mesh.model = {
      .layers = 4, .hidden = 256, .heads = 4, .sequence = 32, .vocab = 512, .ffn = 1024};
  job.mesh.parallel.data = data;
  job.mesh.micro_batch = {.B = 1, .T = 32};
  job.mesh.num_micro_batches = 4;
  return job;
}

Cluster cluster_of(double network_bytes_per_second, double memory_bytes = 0.0) {
  Cluster cluster{.nodes = {{.count = 2, .devices = 4, .memory_bytes = memory_bytes}}};
  cluster.node_link.bytes_per_second = 100e9;
  cluster.network_link.bytes_per_second = network_bytes_per_second;
  cluster.network_link.shared_by = Cluster::SharedBy::node;
  return cluster;
}

StrategyRanking ranking_of(const PlanJob& job, const Cluster& cluster) {
  return rank_strategies(job, assumed_costs(job.mesh.model, {}), cluster);
}

const RankedStrategy& row_of(const StrategyRanking& ranking, const DataStrategy& strategy) {
  const auto found = std::ranges::find_if(ranking.rows, [&](const RankedStrategy& row) {
    return row.parallel.data_strategy == strategy;
  });
  REQUIRE(found != ranking.rows.end());
  return *found;
}

}  // namespace

TEST_CASE("every strategy is ranked once, groups are nodes, and the shortest step comes first") {
  const StrategyRanking ranking = ranking_of(job_of(), cluster_of(1e9));
  std::set<std::string> names;
  for (const RankedStrategy& row : ranking.rows) {
    names.insert(letters_of(row.parallel.data_strategy));
    if (row.parallel.data_strategy.has_groups()) {
      CHECK(row.parallel.data_ranks_of_group() == 4);
    }
  }
  CHECK(names.size() == 14);
  CHECK(ranking.rows.size() == 14);
  CHECK(std::ranges::is_sorted(
      ranking.rows, {}, [](const RankedStrategy& row) { return row.step.value; }));
}

TEST_CASE(
    "what is shared out in groups sends less between them, and what is shared out is smaller") {
  const StrategyRanking ranking = ranking_of(job_of(), cluster_of(1e9));
  const auto named = [&](const char* letters) -> const RankedStrategy& {
    return row_of(ranking, *data_strategy_named(letters));
  };
  CHECK(named("NNI").bytes_across < named("NNG").bytes_across);
  CHECK(named("III").bytes_across < named("GGG").bytes_across);
  CHECK(named("IIG").bytes_across == named("III").bytes_across);
  CHECK(named("GGG").memory_bytes < named("IIG").memory_bytes);
  CHECK(named("IIG").memory_bytes < named("NNG").memory_bytes);
  CHECK(named("NNG").memory_bytes < named("NNN").memory_bytes);
}

// Four micro-batches of so slow a network that nothing hides behind computing.
TEST_CASE("over a slow network the fastest strategies send least between nodes") {
  const StrategyRanking ranking = ranking_of(job_of(), cluster_of(1e5));
  std::size_t least = ranking.rows.front().bytes_across;
  for (const RankedStrategy& row : ranking.rows) {
    least = std::min(least, row.bytes_across);
  }
  CHECK(ranking.rows.front().bytes_across == least);
  CHECK(row_of(ranking, DataStrategy::zero3).step.value > 2.0 * ranking.rows.front().step.value);
}

TEST_CASE("auto takes the fastest strategy that fits") {
  PlanJob job = job_of();
  job.mesh.parallel.chooses_strategy = true;
  const StepCosts costs = assumed_costs(job.mesh.model, {});
  const Cluster plenty = cluster_of(1e5);
  const DataStrategy first = ranking_of(job, plenty).rows.front().parallel.data_strategy;
  CHECK(with_strategy(job, costs, plenty).mesh.parallel.data_strategy == first);
  CHECK(choose_strategy(job, plenty).parallel.data_strategy == first);
  // Room for what zero3 takes and a little more.
  job.mesh.parallel.data_strategy = DataStrategy::zero3;
  const auto small = static_cast<double>(largest_memory(job, {}));
  const Cluster tight = cluster_of(1e5, small * 1.001);
  const PlanJob chosen = with_strategy(job, costs, tight);
  CHECK_FALSE(chosen.mesh.parallel.chooses_strategy);
  CHECK(chosen.mesh.parallel.data_strategy == DataStrategy::zero3);
  CHECK_FALSE(row_of(ranking_of(job, tight), DataStrategy::replicate).fits);
  job.mesh.parallel.chooses_strategy = true;
  CHECK_THROWS_WITH(choose_strategy(job, cluster_of(1e5, small * 0.5)),
                    Catch::Contains("parallel.data_strategy: must fit") &&
                        Catch::Contains(R"(nearest is "zero3")"));
}

TEST_CASE("strategies that codecs of the config do not sit on are left out, as are equal ones") {
  PlanJob job = job_of();
  job.compress.policy = CompressionPolicy::all;
  job.compress.sites["data_gradient"] = {.kind = CodecKind::cast};
  std::set<std::string> names;
  for (const RankedStrategy& row : ranking_of(job, cluster_of(1e9)).rows) {
    names.insert(name_of(row.parallel.data_strategy));
  }
  CHECK(names == std::set<std::string>{"replicate", "zero1"});
  // Four data ranks stand on one node: a group is all of them.
  for (const RankedStrategy& row : ranking_of(job_of(4), cluster_of(1e9)).rows) {
    CHECK_FALSE(row.parallel.data_strategy.has_groups());
  }
}

}  // namespace slackline
