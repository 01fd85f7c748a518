// What `slackline plan` prints and writes.

#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "core/threads/thread_pool.h"
#include "parallel/predict/assumed_costs.h"
#include "tests/parallel/schedule/golden_text.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/support/environment.h"
#include "tests/support/run_process.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/plan/planned_job.h"
#include "tools/plan/compression_plans.h"
#include "tools/plan/cost_file.h"
#include "tools/plan/decided_groups.h"
#include "tools/plan/memory_advice.h"
#include "tools/plan/memory_plan.h"
#include "tools/plan/plan_json.h"
#include "tools/plan/plan_text.h"

namespace slackline {

using Catch::Contains;
using testing::require_done;

namespace {

const std::vector<std::string> kMesh = {"parallel.tensor=2",
                                        "parallel.pipeline=2",
                                        "parallel.data=2",
                                        "batch.micro=1",
                                        "parallel.data_strategy=zero1"};

Cluster two_nodes() {
  return {
      .nodes = {{.count = 2, .devices = 4}},
      .node_link = {.latency_seconds = 1e-5, .bytes_per_second = 1e10},
      .network_link = {
          .latency_seconds = 5e-5, .bytes_per_second = 1e9, .shared_by = Cluster::SharedBy::node}};
}

nlohmann::json sum_of_bytes(const nlohmann::json& ranks) {
  nlohmann::json sum = {{"tensor", 0}, {"pipeline", 0}, {"data", 0}, {"embedding", 0}};
  for (const nlohmann::json& rank : ranks) {
    for (const auto& [axis, bytes] : rank["bytes_sent"].items()) {
      sum[axis] = sum[axis].get<std::size_t>() + bytes.get<std::size_t>();
    }
  }
  return sum;
}

// A config file of 64 ranks and more parameters than this machine has memory.
std::string big_config(const std::string& path) {
  write_file_atomically(path, R"({
    "run": {"dir": "runs/x", "steps": 10},
    "model": {"layers": 96, "hidden": 12288, "heads": 96, "sequence": 2048, "vocab": 50257},
    "data": {"train": [{"path": "corpus/missing"}]},
    "batch": {"global": 256, "micro": 1},
    "parallel": {"tensor": 8, "pipeline": 8, "data": 1, "schedule": "interleaved", "chunks": 2}
  })");
  return path;
}

}  // namespace

TEST_CASE("a plan says what a round of workers takes, and how long a period hides it") {
  const auto plan_of = [&](const std::string& period) {
    return make_step_plan(planned_job({"parallel.pipeline=2",
                                       "parallel.data=4",
                                       "parallel.group=2",
                                       "batch.micro=1",
                                       R"(outer={"method": "co2", "period": )" + period + "}"}),
                          std::nullopt,
                          two_nodes());
  };
  const StepPlan plan = plan_of("7");
  const nlohmann::json round = nlohmann::json::parse(plan_json(plan, {}))["outer"];
  CHECK(round["workers"] == 2);
  CHECK(round["period"] == 7);
  // The tied table stands on both stages: so often it is sent.
  const ModelConfig& model = plan.job.mesh.model;
  const auto sent =
      static_cast<std::size_t>(num_parameters(model) + std::int64_t{model.vocab} * model.hidden);
  CHECK(round["bytes"] == 2 * sent * sizeof(float));
  // Both nodes' four ranks send at once, each half of what all send.
  const double seconds = static_cast<double>(sent) * sizeof(float) / 1e9;
  CHECK(round["seconds"].get<double>() >= seconds / 2);
  CHECK(round["seconds"].get<double>() <= 2 * seconds + 1e-3);
  const double step = plan.timeline.step.value;
  const auto shortest = round["shortest_period"].get<double>();
  CHECK(shortest * step >= round["seconds"].get<double>());
  CHECK((shortest - 1) * step < 1.1 * round["seconds"].get<double>());
  CHECK_THAT(plan_text(plan), Contains("outer rounds of 2 workers"));
  CHECK(nlohmann::json::parse(plan_json(plan_of("\"auto\""), {}))["outer"]["period"].is_null());
  CHECK(round["codec"].is_null());
}

TEST_CASE("exchanges of a round that follow each other each have their latency") {
  const auto seconds = [](const std::string& outer, const std::string& compress) {
    Cluster cluster{.nodes = {{.count = 4, .devices = 1}}};
    cluster.network_link = {.latency_seconds = 0.05, .bytes_per_second = 1e15};
    const StepPlan plan = make_step_plan(planned_job({"parallel.data=4",
                                                      "parallel.group=1",
                                                      "batch.micro=1",
                                                      "outer=" + outer,
                                                      "compress=" + compress}),
                                         std::nullopt,
                                         cluster);
    return plan.round->seconds->value - plan.round->coding.value;
  };
  const std::string diloco = R"({"method": "diloco", "period": 4})";
  const std::string none = R"({"policy": "none"})";
  CHECK(seconds(diloco, none) == Approx(2 * 0.05).epsilon(0.01));  // a sum over four ranks
  CHECK(seconds(R"({"method": "co2", "period": 4})", none) == Approx(2 * 0.05).epsilon(0.01));
  // Factors are summed twice, the second made of the first.
  CHECK(seconds(diloco, R"({"policy": "all", "outer": {"codec": "low_rank", "rank": 4}})") ==
        Approx(4 * 0.05).epsilon(0.01));
}

TEST_CASE("a plan counts what compressed rounds send and take") {
  const auto plan_of = [](const std::vector<std::string>& more) {
    std::vector<std::string> assignments = {"parallel.data=2",
                                            "parallel.group=1",
                                            "batch.micro=1",
                                            R"(outer={"method": "co2", "period": 4})"};
    assignments.insert(assignments.end(), more.begin(), more.end());
    return make_step_plan(planned_job(assignments), std::nullopt, two_nodes());
  };
  const StepPlan plain = plan_of({});
  const StepPlan coded =
      plan_of({R"(compress={"policy": "all", "outer": {"codec": "quantize", "bits": 4}})"});
  CHECK(coded.round->bytes < plain.round->bytes / 7);  // 4 bits of 32, and a scale for 128
  CHECK(coded.round->seconds->value - coded.round->coding.value < plain.round->seconds->value);
  const nlohmann::json round = nlohmann::json::parse(plan_json(coded, {}))["outer"];
  CHECK(round["codec"]["bits"] == 4);
  // Assumed: a pass over some bytes of each element and worker, at gigabytes a second.
  const auto coding = round["coding_seconds"].get<double>();
  const auto elements = static_cast<double>(num_parameters(coded.job.mesh.model));
  CHECK(coding > elements * 4 / 1e11);
  CHECK(coding < elements * 100 / 1e9);
  CHECK(coding < round["seconds"].get<double>());
  CHECK(nlohmann::json::parse(plan_json(plain, {}))["outer"]["coding_seconds"] == 0.0);
  CHECK_THAT(plan_text(coded), Contains("codec        quantize 4"));
  const auto bytes_of = [](const StepPlan& plan, const std::string& name) {
    std::size_t bytes = 0;
    for (const MemoryItem& item : plan.memory.front()) {
      bytes += item.name.starts_with(name) ? item.bytes : 0;
    }
    return bytes;
  };
  // What is owed to matrices and tables; norms and biases travel plain.
  const std::size_t owed = bytes_of(coded, "compression (state)");
  CHECK(bytes_of(plain, "compression") == 0);
  // End points of two workers are reduced and scattered: half of them arrives, in whole pages.
  const double arriving = static_cast<double>(bytes_of(plain, "sums under way"));
  CHECK(arriving >= 2.0 * elements);
  CHECK(arriving < 2.1 * elements + 64 * 4096);
  CHECK(owed < bytes_of(coded, "outer anchor") / 3);
  CHECK(owed > bytes_of(coded, "outer anchor") / 3 * 9 / 10);
  const StepPlan eager = plan_of({"outer.eager=true"});
  CHECK(bytes_of(eager, "outer anchor") == bytes_of(coded, "outer anchor") / 3 * 4);
  // Plain ones are updated on the way: what travels is whole, of the rest a worker has its half.
  const std::size_t whole = bytes_of(coded, "outer anchor") / 3;
  const std::size_t half = (bytes_of(plain, "outer anchor") - whole) / 3;
  CHECK(half >= whole / 2);
  CHECK(half <= whole / 2 + sizeof(float));
}

TEST_CASE("what ranks send adds up to what all send, compressed too") {
  std::vector<std::string> assignments(kMesh.begin(), kMesh.end());
  assignments.emplace_back(R"(compress={"policy": "all",
      "pipeline_backward": {"codec": "quantize", "bits": 8},
      "data_gradient": {"codec": "low_rank", "rank": 2, "error_feedback": "immediate"}})");
  const nlohmann::json plain =
      nlohmann::json::parse(plan_json(make_step_plan(planned_job(kMesh), {}, {})));
  const nlohmann::json json =
      nlohmann::json::parse(plan_json(make_step_plan(planned_job(assignments), {}, {})));
  CHECK(sum_of_bytes(json["ranks"]) == json["bytes_sent"]);
  CHECK(json["ranks"][0]["bytes_sent"]["data"] < plain["ranks"][0]["bytes_sent"]["data"]);
}

TEST_CASE("evaluations and steps that may be skipped keep state of codecs beside it") {
  const auto state_bytes = [](const std::vector<std::string>& more) {
    std::vector<std::string> assignments = {
        "parallel.data=2",
        "batch.micro=1",
        R"(compress={"policy": "all", "data_gradient": {"codec": "low_rank", "rank": 2,
           "error_feedback": "immediate"}})"};
    assignments.insert(assignments.end(), more.begin(), more.end());
    std::size_t bytes = 0;
    const StepPlan plan = make_step_plan(planned_job(assignments), {}, {});
    for (const MemoryItem& item : plan.memory.front()) {
      bytes += item.name == "compression (state)" ? item.bytes : 0;
    }
    return bytes;
  };
  const std::size_t alone = state_bytes({"run.eval_every=0"});
  CHECK(alone > 0);
  CHECK(state_bytes({"run.eval_every=0", "run.on_nonfinite=skip"}) == 2 * alone);
  CHECK(state_bytes({"run.eval_every=2", "data.split=[0.8,0.2,0]"}) == 2 * alone);
}

TEST_CASE("a plan says which collectives go through groups, and what crosses between them") {
  const std::vector<std::string> mesh = {"parallel.pipeline=2",
                                         "parallel.data=4",
                                         "parallel.group=2",
                                         "batch.micro=1",
                                         "parallel.data_strategy=zero1"};
  const auto plan_of = [&](const std::string& collectives) {
    std::vector<std::string> assignments = mesh;
    assignments.push_back("network.collectives=" + collectives);
    PlanJob job = planned_job(assignments);
    job.mesh.parallel = with_decided_groups(job, two_nodes());
    return make_step_plan(job, std::nullopt, two_nodes());
  };
  const StepPlan direct = plan_of("direct");
  CHECK_THAT(plan_text(direct),
             Contains("sums and gathers over 4 data ranks: direct\n") &&
                 Contains("of a tied table, over 8 ranks: direct\n") &&
                 Contains("\nbetween groups ") && !Contains("through groups"));
  const StepPlan hierarchical = plan_of("hierarchical");
  CHECK_THAT(plan_text(hierarchical),
             Contains("sums and gathers over 4 data ranks: through groups of 2 ranks, ") &&
                 Contains("of a tied table, over 8 ranks: through groups of 4 ranks, ") &&
                 Contains("through groups of 2") && Contains("over 8 table ranks: bucket") &&
                 Contains(", through groups of 4"));
  const nlohmann::json json = nlohmann::json::parse(plan_json(hierarchical, {}));
  CHECK(json["collectives"].size() == 2);
  CHECK(json["collectives"][0]["ranks_in_group"] == 2);
  CHECK(json["collectives"][1]["axis"] == "embedding");
  CHECK(json["bytes_sent"]["data"] == direct.step_bytes[kDataAxis]);
  CHECK(json["bytes_across"]["data"] == hierarchical.step_bytes_across[kDataAxis]);
  // 1 of 3 parts of a sum crosses in place of 2 of 3, and of the table 1 of 7 in place of 4 of 7.
  CHECK(2 * hierarchical.step_bytes_across[kDataAxis] == direct.step_bytes_across[kDataAxis]);
  CHECK(4 * hierarchical.step_bytes_across[kEmbeddingAxis] ==
        direct.step_bytes_across[kEmbeddingAxis]);
  // The network is ten times as slow as a node.
  CHECK(hierarchical.timeline.step < direct.timeline.step);
}

TEST_CASE("the text of a plan is golden but for its memory") {
  const StepPlan plan = make_step_plan(planned_job(kMesh), std::nullopt, two_nodes());
  const std::string text = plan_text(plan);
  const std::size_t memory = text.find("memory in bytes");
  REQUIRE(memory != std::string::npos);
  CHECK(text.substr(0, memory) ==
        schedule::testing::source_text("tests/golden/plan/tensor2_data2_pipeline2.txt"));
  for (std::size_t place = 0; place < 2; ++place) {
    CHECK_THAT(text.substr(memory),
               Contains(std::to_string(total_bytes(plan.memory[place], Device::cpu))));
  }
}

TEST_CASE("places have the same rows of memory, whichever of them codes") {
  for (const std::string stage : {"0", "1"}) {
    const PlanJob job = planned_job(
        {"parallel.pipeline=2",
         "parallel.data=2",
         R"(compress={"policy": "list", "classes": [{"site": "data_gradient", "stage": )" + stage +
             R"(, "codec": {"codec": "quantize", "bits": 8}}]})"});
    const StepPlan plan = make_step_plan(job, std::nullopt, two_nodes(), compression_plans(job));
    REQUIRE(plan.memory.size() == 2);
    REQUIRE(plan.memory[0].size() == plan.memory[1].size());
    const std::size_t coding = stage == "0" ? 0 : 1;
    for (std::size_t item = 0; item < plan.memory[0].size(); ++item) {
      const std::string& name = plan.memory[0][item].name;
      CHECK(name == plan.memory[1][item].name);
      if (name.starts_with("compression (m")) {
        CHECK(plan.memory[coding][item].bytes > 0);
        CHECK(plan.memory[1 - coding][item].bytes == 0);
      }
    }
  }
}

TEST_CASE("places have the same rows of memory where rounds move what one of them trains") {
  for (const char* trained : {"h.0.*", "h.7.*"}) {
    const PlanJob job = planned_job({"parallel.pipeline=2",
                                     "parallel.data=2",
                                     "parallel.group=1",
                                     R"(outer={"method": "co2", "period": 2})",
                                     fmt::format(R"(model.trainable=["{}"])", trained)});
    const StepPlan plan = make_step_plan(job, std::nullopt, two_nodes(), compression_plans(job));
    REQUIRE(plan.memory.size() == 2);
    const auto is_same = [](const MemoryItem& a, const MemoryItem& b) { return a.name == b.name; };
    CHECK(std::ranges::equal(plan.memory[0], plan.memory[1], is_same));
    CHECK_THAT(plan_text(plan), Contains("outer anchor"));
  }
}

// What tensor ranks have alike the first one saves for all.
TEST_CASE("the largest memory is that of a tensor rank that saves most") {
  const PlanJob job = planned_job({"parallel.tensor=2"});
  std::size_t most = 0;
  for (const int tensor : {0, 1}) {
    most = std::max(
        most,
        total_bytes(memory_plan(job, {.tensor = tensor}, {}, default_num_threads(2)), Device::cpu));
  }
  CHECK(largest_memory(job, {}, {}) == most);
}

TEST_CASE("the largest memory is the plan's, whatever threads the ranks of each node have") {
  // Nodes of four ranks and of two, which have more threads each.
  Cluster links = two_nodes();
  links.nodes = {{.count = 1, .devices = 4}, {.count = 2, .devices = 2}};
  std::size_t before = 0;
  for (const char* threads : {"1", "64"}) {
    const Environment environment("OMP_NUM_THREADS", threads);
    const StepPlan plan = make_step_plan(planned_job(kMesh), std::nullopt, links);
    const std::size_t most =
        std::ranges::max_element(plan.ranks, {}, &PlannedRank::memory_bytes)->memory_bytes;
    CHECK(largest_memory(plan.job, plan.plans, links) == most);
    CHECK(most > before);  // each thread has its own workspace
    before = most;
  }
  const std::vector<NodeShare> shares = node_shares(planned_job(kMesh).mesh.parallel, links);
  REQUIRE(shares.size() == 8);
  CHECK(shares[3].node == 0);
  CHECK(shares[4].node == 1);
  CHECK(shares[3].num_threads == default_num_threads(4));
  CHECK(shares[4].num_threads == default_num_threads(2));
}

// Shares of 600 data ranks differ by a row of each bucket at most: far below what a plan's memory
// is measured within, 2 %.
TEST_CASE("of many data ranks some stand for all, as far as memory goes") {
  const std::string coded = R"(compress={"policy": "all", "data_gradient":
      {"codec": "low_rank", "rank": 4, "error_feedback": "immediate"}})";
  for (const char* strategy : {"replicate", "zero1", "zero3"}) {
    INFO(strategy);
    const PlanJob job = planned_job({"parallel.data=600",
                                     "batch.global=600",
                                     "batch.micro=1",
                                     fmt::format("parallel.data_strategy={}", strategy),
                                     coded});
    const PlanHistory plans = compression_plans(job);
    const int threads = default_num_threads(600);
    std::size_t most = 0;
    for (int data = 0; data < 600; ++data) {
      most = std::max(most,
                      total_bytes(memory_plan(job, {.data = data}, plans, threads), Device::cpu));
    }
    const std::size_t largest = largest_memory(job, plans, {});
    CHECK(largest <= most);
    CHECK(static_cast<double>(largest) >= 0.999 * static_cast<double>(most));
  }
}

TEST_CASE("a step of workers has the tokens of all of them") {
  const auto tokens_of = [](const std::vector<std::string>& assignments) {
    return make_step_plan(planned_job(assignments), std::nullopt, two_nodes()).tokens_per_step;
  };
  const std::string rounds = R"(outer={"method": "co2", "period": 2})";
  CHECK(tokens_of({"parallel.data=4", "parallel.group=2", "batch.micro=1", rounds}) ==
        tokens_of({"parallel.data=4", "parallel.group=2", "batch.micro=1"}));
}

TEST_CASE("what is tried on a run that is out of memory fits its config") {
  const std::string moments = R"(compress={"policy": "all", "data_gradient":
      {"codec": "quantize", "bits": 4, "units": "moments", "error_feedback": "immediate"}})";
  CHECK_THAT(memory_advice(planned_job({"parallel.data=2", moments}), {}, 1, 1),
             Contains("no smaller micro-batch"));
  const PlanJob split = planned_job(
      {"parallel.pipeline=2", "parallel.schedule=zb_h1", "batch.micro=1", "precision=bf16"});
  CHECK_THAT(memory_advice(split, {}, 1, std::size_t{1} << 40U), !Contains("recompute"));
}

TEST_CASE("a plan of passes that take no time is JSON") {
  StepCosts costs;
  costs.ops = {{.kind = CostKind::forward}, {.kind = CostKind::backward}};
  const StepPlan plan = make_step_plan(planned_job({}), costs, {});
  CHECK(nlohmann::json::accept(plan_json(plan)));
}

TEST_CASE("the schedule of many micro-batches is cut, and says so") {
  const StepPlan plan = make_step_plan(
      planned_job({"batch.global=128", "batch.micro=1", "parallel.pipeline=2"}), {}, {});
  CHECK_THAT(plan_text(plan), Contains("rank 0 | F0") && Contains(" ...\n"));
}

TEST_CASE("json has bytes, classes, stages and ranks that add up") {
  const StepPlan plan = make_step_plan(planned_job(kMesh), std::nullopt, two_nodes());
  const nlohmann::json json = nlohmann::json::parse(plan_json(plan));
  CHECK(json["step_seconds"].get<double>() == Approx(plan.timeline.step.value));
  CHECK(json["bubble_share"].get<double>() == Approx(schedule::bubble_share(plan.timeline)));
  CHECK(json["parameters"] == plan.parameters);
  CHECK(json["memory_bytes"] == json["ranks"][0]["memory_bytes"]);
  REQUIRE(json["ranks"].size() == 8);
  CHECK(json["ranks"][5]["node"] == 1);
  CHECK(sum_of_bytes(json["ranks"]) == json["bytes_sent"]);
  REQUIRE(json["stages"].size() == 2);
  CHECK(json["stages"][0]["layers"].get<int>() + json["stages"][1]["layers"].get<int>() == 8);
  CHECK(json["schedule"]["kind"] == "1f1b");
  CHECK(json["schedule"]["ranks"].size() == 2);
  std::size_t bytes = 0;
  for (const nlohmann::json& row : json["classes"]) {
    bytes += row["raw_bytes"].get<std::size_t>();
    CHECK(row["codec"].is_null());
    CHECK(row["slack_seconds"].get<double>() >= 0.0);
  }
  std::size_t sent = 0;
  for (const char* axis : {"tensor", "pipeline", "data", "embedding"}) {
    sent += json["bytes_sent"][axis].get<std::size_t>();
  }
  CHECK(bytes == sent);
}

TEST_CASE("a run's plan has seconds only where costs were measured") {
  const PlanJob job = planned_job({"parallel.pipeline=2"});
  const nlohmann::json assumed =
      nlohmann::json::parse(plan_files(make_step_plan(job, {}, {})).json);
  CHECK(assumed[0]["predicted_step_seconds"].is_null());
  REQUIRE_FALSE(assumed[0]["classes"].empty());
  CHECK(assumed[0]["classes"][0]["slack_seconds"].is_null());
  CHECK(assumed[0]["classes"][0]["raw_bytes"].get<std::size_t>() > 0);
  CHECK(assumed[0]["classes"][0]["reason"] == "policy none");
  const StepCosts costs = assumed_costs(job.mesh.model, {});
  const PlanFiles files = plan_files(make_step_plan(job, costs, {}));
  const nlohmann::json measured = nlohmann::json::parse(files.json);
  CHECK(measured[0]["predicted_step_seconds"].get<double>() > 0.0);
  CHECK(measured[0]["classes"][0]["slack_seconds"].get<double>() >= 0.0);
  CHECK_THAT(files.text,
             Catch::StartsWith("from step 1: no transfer is compressed\n"
                               "  pipeline_forward, stage 0, warmup: plain (policy none)\n"));
}

TEST_CASE("one rank has no classes, and a tied table between two ranks always has one") {
  const StepPlan alone = make_step_plan(planned_job({}), {}, {});
  CHECK(nlohmann::json::parse(plan_files(alone).json)[0]["classes"].empty());
  const StepPlan two = make_step_plan(planned_job({"parallel.pipeline=2"}), {}, {});
  CHECK_THAT(plan_text(two), Contains("\nembedding "));
}

TEST_CASE("the command reads costs and cluster, and writes a trace with a row for every rank") {
  const TemporaryDirectory directory;
  const std::string config = directory.file("config.json");
  write_file_atomically(config, R"({
    "run": {"dir": "runs/x", "steps": 10},
    "model": {"layers": 4, "hidden": 64, "heads": 4, "sequence": 32, "vocab": 256},
    "data": {"train": [{"path": "corpus/missing"}]}, "batch": {"global": 8, "micro": 1},
    "parallel": {"tensor": 2, "pipeline": 2}})");
  const std::string cluster = directory.file("cluster.json");
  write_file_atomically(cluster, R"({"nodes": [{"devices": 4}],
                                     "links": [{"scope": "node", "bytes_per_second": 1e9}]})");
  const std::string costs = directory.file("costs.json");
  StepCosts measured;
  for (int stage = 0; stage < 2; ++stage) {
    measured.ops.push_back({.stage = stage, .kind = CostKind::forward, .seconds = {0.01}});
    measured.ops.push_back({.stage = stage, .kind = CostKind::backward, .seconds = {0.02}});
  }
  write_file_atomically(costs, cost_file_text(measured));
  const std::string trace = directory.file("trace.json");
  const ProcessResult result = require_done(run_slackline(
      {"plan", config, "--cluster", cluster, "--costs", costs, "--json", "--trace", trace}));
  const nlohmann::json json = nlohmann::json::parse(result.out);
  CHECK(json["step_seconds"].get<double>() == Approx(9 * 0.03).epsilon(0.05));
  CHECK(json["costs"] == costs);
  CHECK(json["links"] == cluster);
  std::set<int> rows;
  const nlohmann::json written = nlohmann::json::parse(read_file(trace));
  for (const nlohmann::json& event : written["traceEvents"]) {
    rows.insert(event["pid"].get<int>());
  }
  CHECK(rows == std::set<int>{0, 1, 2, 3});
  write_file_atomically(cluster, R"({"nodes": [{"devices": 3}],
                                     "links": [{"scope": "node", "bytes_per_second": 1e9}]})");
  const ProcessResult small = run_slackline({"plan", config, "--cluster", cluster});
  CHECK(small.exit_code == 2);
  CHECK_THAT(small.error, Contains(cluster) && Contains("4 ranks") && Contains("got 3"));
}

TEST_CASE("a plan of 64 ranks allocates nothing of the model") {
  const TemporaryDirectory directory;
  const ProcessResult result =
      require_done(run_slackline({"plan", big_config(directory.file("big.json"))}));
  CHECK_THAT(result.out, Contains("64 ranks"));
  // The weights alone would be 700 GB, a rank's 11. Sanitizers keep shadows of all that was
  // touched.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::size_t kMost = std::size_t{8} << 30U;
#else
  constexpr std::size_t kMost = std::size_t{1} << 30U;
#endif
  CHECK(result.peak_bytes < kMost);
}

}  // namespace slackline
