#include "tools/plan/layout_advice.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/json_reader.h"
#include "parallel/predict/assumed_costs.h"
#include "tests/support/catch.h"
#include "tools/config/config_job.h"
#include "tools/plan/decided_groups.h"
#include "tools/plan/step_plan.h"

namespace slackline {

using Catch::Contains;

namespace {

// Eight layers on four ranks; keys changed as by --set.
JsonReader document_with(const std::vector<std::string>& assignments) {
  JsonReader document = JsonReader::parse(R"({
    "run": {"dir": "runs/x", "steps": 10},
    "model": {"layers": 8, "hidden": 256, "heads": 8, "sequence": 128, "vocab": 256},
    "data": {"train": [{"path": "corpus/missing"}]},
    "batch": {"global": 16, "micro": 2},
    "parallel": {"pipeline": 2, "data": 2}
  })",
                                          "planned.json");
  for (const std::string& assignment : assignments) {
    document.set(assignment);
  }
  return document;
}

LayoutAdvice advice(const std::vector<std::string>& assignments,
                    const LinkSpeeds& links,
                    const std::optional<StepCosts>& costs = {},
                    int most = 8) {
  JsonReader document = document_with(assignments);
  const PlanJob job = plan_job(read_train_config(document));
  return advise_layouts(
      job,
      [&](const std::vector<std::string>& changes) {
        return plan_job_with(document.resolved(), changes);
      },
      costs ? *costs : assumed_costs(job.mesh.model, {}),
      links,
      most);
}

constexpr int kAll = 1000;

std::vector<double> steps_of(const LayoutAdvice& found) {
  std::vector<double> steps;
  for (const Layout& layout : found.layouts) {
    steps.push_back(layout.step.value);
  }
  return steps;
}

const Layout& own_of(const LayoutAdvice& found) {
  const auto own = std::find_if(found.layouts.begin(),
                                found.layouts.end(),
                                [](const Layout& layout) { return layout.is_own; });
  REQUIRE(own != found.layouts.end());
  return *own;
}

Cluster nodes_of_two(double node_speed, double network_speed, double memory_bytes = 0.0) {
  return {.nodes = {{.count = 2, .devices = 2, .memory_bytes = memory_bytes}},
          .node_link = {.latency_seconds = 1e-6, .bytes_per_second = node_speed},
          .network_link = {.latency_seconds = 1e-5, .bytes_per_second = network_speed}};
}

}  // namespace

TEST_CASE("layouts are sorted by their predicted step, which is that of a plan of their own") {
  const std::vector<std::string> assignments = GENERATE(
      std::vector<std::string>{},
      std::vector<std::string>{"compress.policy=all",
                               R"(compress.data_gradient={"codec": "low_rank", "rank": 4})"},
      std::vector<std::string>{"parallel.data_strategy=zero3",
                               "compress.policy=all",
                               R"(compress.parameter_gather={"codec": "quantize", "bits": 4})"},
      std::vector<std::string>{"compress.policy=critical_path"});
  const LayoutAdvice found = advice(assignments, nodes_of_two(1e10, 1e8));
  REQUIRE(found.layouts.size() >= 4);
  CHECK(found.num_compared > 20);
  CHECK(std::is_sorted(found.layouts.begin(),
                       found.layouts.end(),
                       [](const auto& a, const auto& b) { return a.step < b.step; }));
  for (const Layout& layout : found.layouts) {
    CHECK(layout.parallel.num_ranks() == 4);
    CHECK(layout.memory_bytes > 0);
  }
  JsonReader document = document_with(assignments);
  PlanJob job = plan_job(read_train_config(document));
  job.mesh.parallel = with_decided_groups(job, nodes_of_two(1e10, 1e8));
  const StepPlan plan = make_step_plan(job, std::nullopt, nodes_of_two(1e10, 1e8));
  CHECK(own_of(found).step.value == Approx(plan.timeline.step.value));
}

TEST_CASE("every division of the ranks is compared under every schedule, and the shortest listed") {
  const Cluster links = nodes_of_two(1e10, 1e8);
  const LayoutAdvice all = advice({}, links, {}, kAll);
  CHECK(std::ssize(all.layouts) == all.num_compared);
  std::set<std::tuple<int, int, ScheduleName>> found;
  for (const Layout& layout : all.layouts) {
    found.emplace(layout.parallel.tensor, layout.parallel.pipeline, layout.parallel.schedule);
  }
  std::set<std::tuple<int, int, ScheduleName>> expected;
  for (const auto& [tensor, pipeline] : {std::pair{1, 1}, {1, 2}, {1, 4}, {2, 1}, {2, 2}, {4, 1}}) {
    expected.emplace(tensor, pipeline, ScheduleName::one_f_one_b);
    if (pipeline > 1) {
      expected.emplace(tensor, pipeline, ScheduleName::interleaved);
      expected.emplace(tensor, pipeline, ScheduleName::zb_h1);
    }
  }
  CHECK(found == expected);

  const std::vector<double> steps = steps_of(all);
  const std::vector<double> listed = steps_of(advice({}, links, {}, 3));
  REQUIRE(listed.size() >= 3);
  CHECK(std::equal(listed.begin(), listed.begin() + 3, steps.begin()));
  // A split of the config's own stages is one among balanced ones, which have it not.
  const LayoutAdvice uneven = advice({"parallel.stage_layers=[5, 3]"}, links, {}, kAll);
  CHECK(uneven.num_compared == all.num_compared);
  CHECK(own_of(uneven).step > own_of(all).step);
}

TEST_CASE("policies that name classes of one layout count as none") {
  const Cluster links = nodes_of_two(1e10, 1e8);
  const LayoutAdvice listed =
      advice({"compress.policy=list",
              R"(compress.classes=[{"site": "data_gradient", "stage": 1, "phase": "step",
                                    "codec": {"codec": "low_rank", "rank": 4}}])"},
             links);
  CHECK(steps_of(listed) == steps_of(advice({}, links)));
}

TEST_CASE("slow networks carry activations of stages, and plans that compress them are shorter") {
  const Layout best = advice({}, nodes_of_two(1e10, 1e7)).layouts.front();
  // Other ranks than those of another stage, which gradients or sums of tensors go to, are those of
  // the node.
  CHECK(best.parallel.tensor * best.parallel.data <= 2);
  const LayoutAdvice compressed =
      advice({"compress.policy=critical_path"}, nodes_of_two(1e10, 1e7));
  CHECK(compressed.layouts.front().step < best.step);
}

TEST_CASE("a layout's memory is that of the rank that needs most") {
  // More layers make the last stage the largest; its second data rank saves the matrices.
  const std::vector<std::string> assignments = {"parallel.stage_layers=[1, 7]"};
  JsonReader document = document_with(assignments);
  const StepPlan plan =
      make_step_plan(plan_job(read_train_config(document)), std::nullopt, nodes_of_two(1e10, 1e8));
  std::size_t most = 0;
  for (const PlannedRank& rank : plan.ranks) {
    most = std::max(most, rank.memory_bytes);
  }
  REQUIRE(plan.ranks[0].memory_bytes < most);
  REQUIRE(plan.ranks[2].memory_bytes < most);
  CHECK(own_of(advice(assignments, nodes_of_two(1e10, 1e8))).memory_bytes == most);
}

TEST_CASE("layouts that need more memory than a device has are left out") {
  const LayoutAdvice all = advice({}, nodes_of_two(1e10, 1e10));
  std::size_t most = 0;
  std::size_t least = SIZE_MAX;
  for (const Layout& layout : all.layouts) {
    most = std::max(most, layout.memory_bytes);
    least = std::min(least, layout.memory_bytes);
  }
  REQUIRE(least < most);
  const auto limit = 0.5 * static_cast<double>(least + most);
  const LayoutAdvice fitting = advice({}, nodes_of_two(1e10, 1e10, limit));
  CHECK(fitting.num_too_large > 0);
  REQUIRE_FALSE(fitting.layouts.empty());
  for (const Layout& layout : fitting.layouts) {
    CHECK(static_cast<double>(layout.memory_bytes) <= limit);
  }
  CHECK_THAT(advice_text(fitting), Contains("need more than"));
}

TEST_CASE("layouts that have no groups for collectives to go through are left out") {
  Cluster links = nodes_of_two(1e10, 1e8);
  links.nodes.front().count = 4;
  const auto advice_with = [&](const char* collectives) {
    return advice({"parallel.pipeline=1",
                   "parallel.data=8",
                   std::string("network.collectives=") + collectives},
                  links,
                  {},
                  kAll);
  };
  const LayoutAdvice through = advice_with("hierarchical");
  CHECK(own_of(through).parallel.data_ranks_of_group() == 2);
  for (const Layout& layout : through.layouts) {
    INFO(layout.parallel.tensor << " x " << layout.parallel.pipeline);
    CHECK(layout.parallel.has_groups_of_ranks());
  }
  const LayoutAdvice direct = advice_with("direct");
  CHECK(through.num_compared < direct.num_compared);
  CHECK(std::ranges::any_of(direct.layouts,
                            [](const Layout& layout) { return layout.parallel.pipeline > 1; }));
}

TEST_CASE("costs of stages alone are compared with nothing but their own layout") {
  StepCosts costs;
  for (const int stage : {0, 1}) {
    costs.ops.push_back({.stage = stage, .kind = CostKind::forward, .seconds = {0.01}});
    costs.ops.push_back({.stage = stage, .kind = CostKind::backward, .seconds = {0.02}});
  }
  const LayoutAdvice found = advice({}, nodes_of_two(1e10, 1e9), costs);
  REQUIRE_FALSE(found.layouts.empty());
  for (const Layout& layout : found.layouts) {
    CHECK(layout.parallel.pipeline * layout.parallel.chunks == 2);
  }
}

TEST_CASE("sites that only some layouts have are compressed where they are") {
  const LayoutAdvice found = advice({"compress.policy=all",
                                     R"(compress.pipeline_backward={"codec": "cast"})",
                                     R"(compress.data_gradient={"codec": "cast"})"},
                                    nodes_of_two(1e10, 1e8));
  CHECK(found.num_compared > 20);
  CHECK(std::any_of(found.layouts.begin(), found.layouts.end(), [](const Layout& layout) {
    return layout.parallel.pipeline == 1 || layout.parallel.data == 1;
  }));
}

TEST_CASE("the table and the list have every column of every layout") {
  const LayoutAdvice advice{
      .layouts =
          {{.parallel = {.tensor = 2, .pipeline = 4, .data = 3},
            .micro = 5,
            .step = {0.25},
            .memory_bytes = 1234567},
           {.parallel = {.tensor = 1, .pipeline = 12, .data = 2, .schedule = ScheduleName::zb_h1},
            .micro = 16,
            .step = {1.5},
            .memory_bytes = 89,
            .is_own = true}},
      .num_compared = 17,
      .num_too_large = 6,
      .memory_limit = 2000000};
  CHECK(advice_text(advice) ==
        "layouts of as many ranks, the shortest step first (17 compared, 6 of the shortest need "
        "more than 2000000 bytes a device):\n"
        "tensor  pipeline  data  micro  schedule       step s    memory bytes\n"
        "     2         4     3      5  1f1b             0.25         1234567\n"
        "     1        12     2     16  zb_h1             1.5              89  <- the config's\n");
  CHECK(advice_json(advice) ==
        R"([{"tensor": 2, "pipeline": 4, "data": 3, "micro": 5, "schedule": "1f1b", )"
        R"("step_seconds": 0.25, "memory_bytes": 1234567, "is_own": false}, )"
        R"({"tensor": 1, "pipeline": 12, "data": 2, "micro": 16, "schedule": "zb_h1", )"
        R"("step_seconds": 1.5, "memory_bytes": 89, "is_own": true}])");
}

}  // namespace slackline
