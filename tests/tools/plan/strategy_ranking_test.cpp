// The ranking of data strategies, and what "auto" takes of it.

#include "tools/plan/strategy_ranking.h"

#include <algorithm>
#include <set>
#include <string>

#include "core/error.h"
#include "parallel/predict/assumed_costs.h"
#include "tests/support/catch.h"
#include "tools/plan/decided_groups.h"
#include "tools/plan/memory_plan.h"

namespace slackline {

namespace {

// Eight data ranks on nodes of four.
PlanJob job_of(int data = 8) {
  PlanJob job;
  job.mesh.model = {
      .layers = 8, .hidden = 256, .heads = 4, .sequence = 32, .vocab = 512, .ffn = 1024};
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

TEST_CASE("collectives through groups send less between nodes, and the ranking knows it") {
  PlanJob job = job_of();
  const StrategyRanking one_group = ranking_of(job, cluster_of(1e5));
  job.mesh.parallel.group = 4;
  const StrategyRanking grouped = ranking_of(job, cluster_of(1e5));
  job.network.collectives = CollectivesWish::direct;
  const StrategyRanking direct = ranking_of(job, cluster_of(1e5));
  for (const char* letters : {"NNN", "NNG", "NGG", "GGG"}) {
    INFO(letters);
    const DataStrategy strategy = *data_strategy_named(letters);
    // Four of seven other ranks stand on the other node, or one of seven.
    const RankedStrategy& through = row_of(grouped, strategy);
    CHECK(row_of(direct, strategy).bytes_across == row_of(one_group, strategy).bytes_across);
    CHECK(through.bytes_across < row_of(direct, strategy).bytes_across / 3);
    CHECK(through.bytes_inside + through.bytes_across ==
          row_of(direct, strategy).bytes_inside + row_of(direct, strategy).bytes_across);
    CHECK(2.0 * through.step < row_of(direct, strategy).step);
    CHECK(row_of(direct, strategy).step == row_of(one_group, strategy).step);
  }
}

TEST_CASE("where the strategy is chosen, groups are nodes for all of them") {
  PlanJob job = job_of();
  job.mesh.parallel.chooses_strategy = true;
  for (const RankedStrategy& row : ranking_of(job, cluster_of(1e5)).rows) {
    INFO(letters_of(row.parallel.data_strategy));
    CHECK(row.parallel.data_ranks_of_group() == 4);
    CHECK_FALSE(row.parallel.data_hierarchy().is_flat());
  }
}

TEST_CASE("collectives through groups that are not there are refused") {
  const auto grouped = [](int group) { return ParallelConfig{.data = 8, .group = group}; };
  CHECK_NOTHROW(require_groups(grouped(4), CollectivesWish::hierarchical));
  CHECK_NOTHROW(require_groups(grouped(8), CollectivesWish::automatic));
  for (const int group : {8, 1}) {
    CHECK_THROWS_WITH(require_groups(grouped(group), CollectivesWish::hierarchical),
                      Catch::StartsWith("network.collectives: must be \"auto\" or \"direct\"") &&
                          Catch::Contains("got \"hierarchical\""));
  }
}

TEST_CASE("a run over nodes whose links nobody knows says what goes directly between them") {
  const auto hint = [](const ParallelConfig& config, const std::vector<int>& nodes) {
    return direct_sums_hint(config, CollectivesWish::automatic, nodes);
  };
  const std::vector<int> two_of_four = {0, 0, 0, 0, 1, 1, 1, 1};
  const ParallelConfig plain{.data = 8};
  CHECK_THAT(hint(plain, two_of_four),
             Catch::StartsWith("sums over 8 data ranks go directly between nodes") &&
                 Catch::Contains("sends 4 times fewer bytes there"));
  CHECK_THAT(hint({.tensor = 2, .data = 4}, two_of_four), Catch::Contains("sends 2 times fewer"));
  CHECK(hint(plain, std::vector<int>(8, 0)).empty());
  CHECK(hint(plain, {0, 1, 2, 3, 4, 5, 6, 7}).empty());
  CHECK(hint(plain, {0, 1, 0, 1, 0, 1, 0, 1}).empty());
  CHECK(hint(plain, {0, 0, 0, 0, 0, 1, 1, 1}).empty());
  // A stage's data ranks are on one node, and would not be in groups.
  CHECK(hint({.pipeline = 2, .data = 4}, two_of_four).empty());
  CHECK(hint({.data = 8, .group = 2}, two_of_four).empty());  // no nodes
  CHECK(hint({.data = 8, .data_strategy = *data_strategy_named("NIG")}, two_of_four).empty());
  CHECK(direct_sums_hint(plain, CollectivesWish::direct, two_of_four).empty());
}

TEST_CASE("a plan refuses collectives through groups on one node") {
  PlanJob job = job_of(4);
  job.network.collectives = CollectivesWish::hierarchical;
  CHECK_THROWS_WITH(with_strategy(job, assumed_costs(job.mesh.model, {}), cluster_of(1e9)),
                    Catch::StartsWith("network.collectives: "));
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
  CHECK(choose_strategy(job, plenty, {}).parallel.data_strategy == first);
  // Room for what zero3 takes and a little more.
  job.mesh.parallel.data_strategy = DataStrategy::zero3;
  const auto small = static_cast<double>(largest_memory(job, {}, cluster_of(1e5)));
  const Cluster tight = cluster_of(1e5, small * 1.001);
  const PlanJob chosen = with_strategy(job, costs, tight);
  CHECK_FALSE(chosen.mesh.parallel.chooses_strategy);
  CHECK(chosen.mesh.parallel.data_strategy == DataStrategy::zero3);
  CHECK_FALSE(row_of(ranking_of(job, tight), DataStrategy::replicate).fits);
  job.mesh.parallel.chooses_strategy = true;
  CHECK_THROWS_WITH(choose_strategy(job, cluster_of(1e5, small * 0.5), {}),
                    Catch::Contains("parallel.data_strategy: must fit") &&
                        Catch::Contains(R"(nearest is "zero3")"));
}

TEST_CASE("auto takes what fits the memory that ranks have left, where links do not say") {
  PlanJob job = job_of();
  job.mesh.parallel.data_strategy = DataStrategy::zero3;
  const auto small = static_cast<double>(largest_memory(job, {}, cluster_of(1e5)));
  job.mesh.parallel.chooses_strategy = true;
  const DeviceFacts tight{.memory_bytes = static_cast<std::size_t>(1.001 * small)};
  CHECK(choose_strategy(job, cluster_of(1e5), tight).parallel.data_strategy == DataStrategy::zero3);
  CHECK(choose_strategy(job, cluster_of(1e5, 1e12), tight).parallel.data_strategy !=
        DataStrategy::zero3);
}

TEST_CASE("groups are as large as the smallest share of a node that a run's ranks have") {
  CHECK(fewest_ranks_of_node({0, 0, 0, 0, 1, 1, 1, 1}) == 4);
  CHECK(fewest_ranks_of_node({0, 0, 0, 0, 1, 1}) == 2);
  PlanJob job = job_of(6);  // on nodes of four
  CHECK(fewest_ranks_of_node(cluster_of(1e9), job) == 2);
  job.mesh.parallel.data_strategy = *data_strategy_named("NII");
  CHECK(with_decided_groups(job, cluster_of(1e9)).data_ranks_of_group() == 2);
  job.mesh.parallel.data = 3;
  job.num_workers = 2;
  CHECK(fewest_ranks_of_node(cluster_of(1e9), job) == 2);
}

// Psi' < Psi: sums and state are of what is trained, gathers of everything.
TEST_CASE("the ranking counts what is not trained as weights that are gathered and nothing else") {
  for (const int pipeline : {1, 2}) {
    for (const std::vector<std::string>& trained :
         {std::vector<std::string>{"h.3.*"}, {"h.3.*", "wte.weight"}}) {
      INFO("pipeline " << pipeline << ", " << trained.size() << " patterns");
      PlanJob job = job_of(8 / pipeline);
      job.mesh.parallel.pipeline = pipeline;
      const StrategyRanking all = ranking_of(job, cluster_of(1e9));
      job.mesh.model.trainable = trained;
      const StrategyRanking part = ranking_of(job, cluster_of(1e9));
      REQUIRE(part.rows.size() == all.rows.size());
      const auto bytes = [](const StrategyRanking& ranking, const DataStrategy& strategy) {
        const RankedStrategy& row = row_of(ranking, strategy);
        return static_cast<double>(row.bytes_inside + row.bytes_across);
      };
      const double share = static_cast<double>(num_trained_parameters(job.mesh.model)) /
                           static_cast<double>(num_parameters(job.mesh.model));
      const double summed =
          bytes(part, DataStrategy::replicate) / bytes(all, DataStrategy::replicate);
      // Gaps of a cache line, and a table that stands on two stages.
      CHECK(summed < 1.3 * share);
      CHECK(summed > 0.7 * share);
      // Of a layer and micro-batch zero3 gathers twice and reduces once.
      const double zero3 = bytes(part, DataStrategy::zero3) / bytes(all, DataStrategy::zero3);
      CHECK(zero3 > 0.6);
      CHECK(zero3 < 0.9);
      for (const RankedStrategy& row : part.rows) {
        INFO(letters_of(row.parallel.data_strategy));
        const RankedStrategy& whole = row_of(all, row.parallel.data_strategy);
        CHECK(row.memory_bytes < whole.memory_bytes);
        CHECK(row.step.value < whole.step.value);
      }
    }
  }
}

// Weights that are gathered for each micro-batch ask for few of them, memory for small ones.
TEST_CASE("auto takes a micro-batch, too, where the config leaves it open") {
  PlanJob job = job_of();
  job.mesh.parallel.chooses_strategy = true;
  job.chooses_micro_batch = true;
  const StepCosts costs = assumed_costs(job.mesh.model, {});
  const Cluster plenty = cluster_of(1e5);
  CHECK(row_of(ranking_of(job, plenty), DataStrategy::zero3).micro_batch == 4);
  const PlanJob chosen = with_strategy(job, costs, plenty);
  const StrategyRanking ranking = ranking_of(job, plenty);
  CHECK(chosen.mesh.micro_batch.B == ranking.rows.front().micro_batch);
  CHECK(chosen.mesh.global_batch() == job.mesh.global_batch());
  const auto memory_with = [&](std::int64_t sequences) {
    PlanJob sized = job;
    sized.chooses_micro_batch = false;
    sized.mesh.micro_batch.B = sequences;
    sized.mesh.num_micro_batches = static_cast<int>(4 / sequences);
    const StrategyRanking ranked = ranking_of(sized, plenty);
    return static_cast<double>(row_of(ranked, DataStrategy::zero3).memory_bytes);
  };
  for (const std::int64_t sequences : {1, 2}) {
    const Cluster tight = cluster_of(1e5, 1.001 * memory_with(sequences));
    REQUIRE(memory_with(2 * sequences) > 1.001 * memory_with(sequences));
    const RankedStrategy row = row_of(ranking_of(job, tight), DataStrategy::zero3);
    CHECK(row.micro_batch == sequences);
    CHECK(row.fits);
  }
  job.chooses_micro_batch = false;
  CHECK(row_of(ranking_of(job, plenty), DataStrategy::zero3).micro_batch == 1);
}

TEST_CASE("strategies that codecs of the config do not sit on are left out, as are equal ones") {
  PlanJob job = job_of();
  job.compress.policy = CompressionPolicy::all;
  const CodecSetting cast{.kind = CodecKind::cast};
  const auto names_of = [](const PlanJob& ranked) {
    std::set<std::string> names;
    for (const RankedStrategy& row : ranking_of(ranked, cluster_of(1e9)).rows) {
      names.insert(name_of(row.parallel.data_strategy));
    }
    return names;
  };
  const std::set<std::string> all = names_of(job);
  CHECK(all.contains("zero2"));
  job.compress.sites["data_gradient"] = cast;
  CHECK(names_of(job) == all);
  job.compress = {.policy = CompressionPolicy::critical_path};
  job.compress.candidates["data_gradient"] = {cast};
  CHECK(names_of(job) == all);
  std::set<std::string> not_in_passes = all;
  std::erase_if(not_in_passes, [](const std::string& name) {
    return data_strategy_named(name)->gradients == Extent::global;
  });
  job.compress = {.policy = CompressionPolicy::list,
                  .classes = {{.site = "embedding", .codec = cast}}};
  CHECK(names_of(job) == not_in_passes);
  // Four data ranks stand on one node: a group is all of them.
  for (const RankedStrategy& row : ranking_of(job_of(4), cluster_of(1e9)).rows) {
    CHECK_FALSE(row.parallel.data_strategy.has_groups());
  }
}

TEST_CASE("a worker is one group, whatever its nodes, and graphs take no shared passes") {
  PlanJob worker = job_of(4);
  worker.outer.method = OuterMethod::co2;
  Cluster pairs = cluster_of(1e6);
  pairs.nodes = {{.count = 4, .devices = 2}};
  CHECK(row_of(ranking_of(job_of(4), pairs), *data_strategy_named("IIG")).bytes_across > 0);
  for (const RankedStrategy& row : ranking_of(worker, pairs).rows) {
    CHECK_FALSE(row.parallel.data_strategy.has_groups());
  }
  PlanJob graphs = job_of();
  graphs.cuda_graphs = true;
  for (const RankedStrategy& row : ranking_of(graphs, cluster_of(1e9)).rows) {
    CHECK_FALSE(row.parallel.data_strategy.shares_passes());
  }
}

TEST_CASE("a strategy or micro-batch without the transfers that a list names is left out") {
  PlanJob job = job_of(4);
  job.mesh.parallel.pipeline = 2;
  job.chooses_micro_batch = true;  // a whole share has no steady phase
  job.compress = {.policy = CompressionPolicy::list,
                  .classes = {{.site = "pipeline_forward",
                               .phase = "steady",
                               .codec = CodecSetting{.kind = CodecKind::cast}}}};
  Cluster cluster = cluster_of(1e9);
  CHECK(ranking_of(job, cluster).rows.size() > 4);
  const CodecSetting cast{.kind = CodecKind::cast};
  job.compress.classes = {{.site = "data_gradient", .codec = cast},
                          {.site = "parameter_gather", .codec = cast}};
  for (const RankedStrategy& row : ranking_of(job, cluster).rows) {
    CHECK(row.parallel.data_strategy.parameters != Extent::none);
  }
  job.compress.classes[0].site = "embedding";  // of a table on two stages
  CHECK_THROWS_AS(ranking_of(job, cluster), ConfigError);
}

TEST_CASE("what codecs keep counts as memory of a strategy") {
  PlanJob job = job_of();
  const auto memory = [&] {
    return row_of(ranking_of(job, cluster_of(1e9)), DataStrategy::replicate).memory_bytes;
  };
  const std::size_t plain = memory();
  job.compress.policy = CompressionPolicy::all;
  job.compress.sites["data_gradient"] = {
      .error_feedback = ErrorFeedback::immediate, .rank = 8, .factors = DType::bf16};
  std::size_t matrices = 0;  // of layers, which residuals stand for
  matrices += 4UL * 12UL * 256UL * 256UL;
  CHECK(memory() >= plain + matrices * sizeof(float));
}

}  // namespace slackline
