// Compressing, sharding and outer rounds beside each other.

#include "tools/plan/link_ways.h"

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "parallel/predict/assumed_costs.h"
#include "tests/support/catch.h"
#include "tests/tools/plan/planned_job.h"
#include "tools/plan/step_plan.h"

namespace slackline {

using Catch::Contains;

namespace {

Cluster two_nodes(double bytes_per_second) {
  return {.nodes = {{.count = 2, .devices = 4}},
          .node_link = {.latency_seconds = 1e-6, .bytes_per_second = 1e11},
          .network_link = {.latency_seconds = 1e-5,
                           .bytes_per_second = bytes_per_second,
                           .shared_by = Cluster::SharedBy::node}};
}

std::vector<LinkWay> ways(const std::vector<std::string>& assignments, const LinkSpeeds& links) {
  std::vector<std::string> all = {"parallel.data=8", "batch.micro=1"};
  all.insert(all.end(), assignments.begin(), assignments.end());
  const JsonReader document = planned_document(all);
  const PlanJob job = plan_job(read_train_config(document));
  return ways_over_links(
      job,
      [&](const std::vector<std::string>& changes) {
        return plan_job_with(document.resolved(), changes);
      },
      assumed_costs(job.mesh.model, {}),
      links);
}

const LinkWay& way(const std::vector<LinkWay>& list, const std::string& name) {
  return *std::ranges::find(list, name, &LinkWay::name);
}

}  // namespace

TEST_CASE("over a slow link ways that send less come first, and rounds hide") {
  const std::vector<LinkWay> slow = ways({}, two_nodes(1e6));
  REQUIRE(slow.size() == 5);
  CHECK(std::ranges::is_sorted(slow, {}, [](const LinkWay& one) { return one.step.value; }));
  const LinkWay& plain = way(slow, "plain");
  const LinkWay& compressing = way(slow, "compressing");
  const LinkWay& rounds = way(slow, "outer rounds");
  CHECK(slow.front().name == "outer rounds");
  CHECK(compressing.step < plain.step);
  CHECK(compressing.bytes_across < plain.bytes_across);
  CHECK(rounds.bytes_across < plain.bytes_across / 10);
  CHECK_THAT(rounds.setting, Contains("co2 eager, period "));
  // A step of a worker, whatever the link: what all eight ranks take where nothing takes time.
  const double computing = way(ways({}, two_nodes(1e15)), "plain").step.value;
  CHECK(rounds.step.value == Approx(computing).epsilon(0.01));
}

TEST_CASE("the ways of a run in rounds are those of the same run that steps together") {
  const std::vector<LinkWay> own =
      ways({R"(outer={"method": "diloco"})",
            "parallel.group=4",
            R"(compress={"policy": "all", "outer": {"codec": "cast"}})"},
           two_nodes(1e6));
  const std::vector<LinkWay> together = ways({"parallel.group=4"}, two_nodes(1e6));
  REQUIRE(own.size() == together.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    CHECK(own[i].name == together[i].name);
    CHECK(own[i].step.value == together[i].step.value);
    CHECK(own[i].bytes_across == together[i].bytes_across);
  }
}

TEST_CASE("ways have the micro-batches of the plan beside them, chosen ones too") {
  const Cluster links = two_nodes(1e6);
  PlanJob job = planned_job({"parallel.data=8", "batch.global=64", "batch.micro=1"});
  const JsonReader open = planned_document(
      {"parallel.data=8", "batch.global=64", "batch.micro=null", "parallel.data_strategy=auto"});
  static_cast<void>(read_train_config(open));
  std::vector<std::int64_t> micro_batches;
  static_cast<void>(ways_over_links(
      job,
      [&](const std::vector<std::string>& changes) {
        auto changed = plan_job_with(open.resolved(), changes);
        if (changed) {
          micro_batches.push_back(changed->mesh.micro_batch.B);
        }
        return changed;
      },
      assumed_costs(job.mesh.model, {}),
      links));
  REQUIRE(micro_batches.size() >= 4);
  CHECK(std::ranges::count(micro_batches, 1) == std::ssize(micro_batches));
}

TEST_CASE("what rules forbid is left out, and one group has no ways") {
  CHECK(ways({}, {}).empty());
  CHECK(ways({"parallel.group=8"}, two_nodes(1e6)).empty());
  Cluster one = two_nodes(1e6);
  one.nodes = {{.count = 1, .devices = 8}};
  CHECK(ways({}, one).empty());
  // Workers that train apart have no sums that go through groups.
  const std::vector<LinkWay> left = ways({"network.collectives=hierarchical"}, two_nodes(1e6));
  CHECK(left.size() == 3);
  CHECK(way(left, "plain").step.value > 0.0);
  CHECK(std::ranges::find(left, "outer rounds", &LinkWay::name) == left.end());
}

TEST_CASE("a table and a list show the ways") {
  Cluster small = two_nodes(1e6);
  small.nodes.front().memory_bytes = 1e6;  // less than the model takes
  const std::vector<LinkWay> list = ways({}, small);
  CHECK_THAT(ways_text(list), Contains("compressing") && Contains("does not fit"));
  const nlohmann::json rows = nlohmann::json::parse(ways_json(list));
  REQUIRE(rows.size() == list.size());
  CHECK(rows[0]["way"] == list[0].name);
  CHECK(rows[0]["fits"] == false);
  CHECK(rows[0]["step_seconds"] == list[0].step.value);
}

}  // namespace slackline
