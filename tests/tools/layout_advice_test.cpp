#include "tools/layout_advice.h"

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "core/json_reader.h"
#include "tests/support/catch.h"
#include "tools/step_plan.h"

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
                    const std::optional<StepCosts>& costs = {}) {
  JsonReader document = document_with(assignments);
  const TrainConfig config = read_train_config(document);
  return advise_layouts(
      config, document.resolved(), costs ? *costs : assumed_costs(config.model, {}), links);
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
      std::vector<std::string>{"compress.policy=critical_path"});
  const LayoutAdvice found = advice(assignments, nodes_of_two(1e10, 1e8));
  REQUIRE(found.layouts.size() >= 4);
  CHECK(found.num_compared > 20);
  CHECK(std::is_sorted(found.layouts.begin(),
                       found.layouts.end(),
                       [](const auto& a, const auto& b) { return a.step < b.step; }));
  const auto own = std::find_if(found.layouts.begin(),
                                found.layouts.end(),
                                [](const Layout& layout) { return layout.is_own; });
  REQUIRE(own != found.layouts.end());
  for (const Layout& layout : found.layouts) {
    CHECK(layout.parallel.num_ranks() == 4);
    CHECK(layout.memory_bytes > 0);
  }
  JsonReader document = document_with(assignments);
  const StepPlan plan =
      make_step_plan(read_train_config(document), std::nullopt, nodes_of_two(1e10, 1e8));
  CHECK(own->step.value == Approx(plan.timeline.step.value));
}

TEST_CASE("tensor ranks stay inside nodes, and slow networks carry what is smallest") {
  const Layout best = advice({}, nodes_of_two(1e10, 1e7)).layouts.front();
  CHECK(best.parallel.tensor <= 2);
  const LayoutAdvice compressed =
      advice({"compress.policy=critical_path"}, nodes_of_two(1e10, 1e7));
  CHECK(compressed.layouts.front().step < best.step);
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

TEST_CASE("the table marks the config's own layout, and the list is JSON") {
  const LayoutAdvice found = advice({}, nodes_of_two(1e10, 1e9));
  CHECK_THAT(advice_text(found), Contains("<- the config's"));
  const nlohmann::json list = nlohmann::json::parse(advice_json(found));
  CHECK(list.size() == found.layouts.size());
  CHECK(list[0]["step_seconds"] == found.layouts.front().step.value);
}

}  // namespace slackline
