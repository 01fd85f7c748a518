#include "parallel/critical_path.h"

#include <algorithm>
#include <string>

#include "core/json_reader.h"
#include "parallel/class_bytes.h"
#include "parallel/class_costs.h"
#include "parallel/codec_measurement.h"
#include "parallel/schedule/timeline.h"
#include "tests/support/catch.h"

namespace slackline {

using Catch::Contains;

namespace {

using schedule::Phase;
using schedule::Site;
using schedule::TransferClass;

CompressConfig read(const std::string& section) {
  return read_compress_config(
      JsonReader::parse(R"({"compress": )" + section + "}", "run.json").section("compress"));
}

MeshJob job_of(const ParallelConfig& parallel) {
  return {.model = {.layers = 4,
                    .hidden = 64,
                    .heads = 4,
                    .sequence = 32,
                    .vocab = 100,
                    .ffn = 256,
                    .tie_embeddings = true},
          .parallel = parallel,
          .micro_batch = {.B = 2, .T = 32},
          .num_micro_batches = 4};
}

const ParallelConfig kMesh{.pipeline = 2, .data = 2};

// A forward pass of a millisecond on each stage, a backward pass of two.
StepCosts costs_of(int num_stages) {
  StepCosts costs;
  for (int stage = 0; stage < num_stages; ++stage) {
    costs.ops.push_back({.stage = stage, .kind = CostKind::forward, .seconds = {1e-3}});
    costs.ops.push_back({.stage = stage, .kind = CostKind::backward, .seconds = {2e-3}});
  }
  return costs;
}

Cluster cluster_of(double bytes_per_second) {
  const Cluster::Link link{.latency_seconds = 1e-6, .bytes_per_second = bytes_per_second};
  return {.nodes = {{.count = 4, .devices = 1}}, .node_link = link, .network_link = link};
}

CriticalPathPlan choose(const std::string& section,
                        const ParallelConfig& mesh,
                        double bytes_per_second,
                        const StepCosts& more = {},
                        const GuardLimits& limits = {}) {
  StepCosts costs = costs_of(mesh.pipeline);
  costs.codecs = more.codecs;
  return choose_critical_path(
      read(section), job_of(mesh), costs, cluster_of(bytes_per_second), limits);
}

const CompressionPlan::Class& row_of(const CompressionPlan& plan, const TransferClass& members) {
  return *std::find_if(plan.classes.begin(),
                       plan.classes.end(),
                       [&](const CompressionPlan::Class& row) { return row.members == members; });
}

constexpr TransferClass kCooldown{Site::pipeline_backward, 1, Phase::cooldown};
constexpr TransferClass kGradients{Site::data_gradient, 0, Phase::step};
constexpr TransferClass kLateGradients{Site::data_gradient, 1, Phase::step};

const char* const kPolicy = R"({"policy": "critical_path"})";

}  // namespace

TEST_CASE("fast links leave everything plain, and every class says why") {
  const CriticalPathPlan chosen = choose(kPolicy, kMesh, 1e12);
  CHECK_FALSE(chosen.plan.compresses_anything());
  CHECK(chosen.step == chosen.plain_step);
  CHECK(chosen.plan.classes.size() == 7);
  for (const CompressionPlan::Class& row : chosen.plan.classes) {
    INFO(schedule::class_text(row.members));
    CHECK_THAT(row.reason, Contains("policy critical_path: "));
    CHECK_THAT(row.reason, Contains("left plain"));
  }
  CHECK_THAT(row_of(chosen.plan, kLateGradients).reason, Contains("hidden by"));
}

TEST_CASE("slow links have what the step waits for compressed, and every class says what it wins") {
  const CriticalPathPlan chosen = choose(kPolicy, kMesh, 1e7);
  CHECK(chosen.step < 0.7 * chosen.plain_step);
  for (const TransferClass& members : {kCooldown, kGradients}) {
    const CompressionPlan::Class& row = row_of(chosen.plan, members);
    INFO(schedule::class_text(members));
    CHECK(row.codec);
    CHECK_THAT(row.reason, Contains("wins"));
  }
}

TEST_CASE("a class that a guard has changed gets nothing that loses more than what it left") {
  const char* const coarse = R"({"policy": "critical_path", "pipeline_backward": {"candidates":
      [{"codec": "cast"}, {"codec": "quantize", "bits": 8}, {"codec": "quantize", "bits": 2}]}})";
  const CodecSetting bits{.kind = CodecKind::quantize, .bits = 2};
  const CodecSetting bytes{.kind = CodecKind::quantize, .bits = 8};
  const auto chosen = [&](const GuardLimits& limits) {
    return choose(coarse, {.pipeline = 2}, 1e5, {}, limits).plan;
  };
  REQUIRE(row_of(chosen({}), kCooldown).codec == bits);
  CHECK(row_of(chosen({{kCooldown, bits}}), kCooldown).codec == bits);
  CHECK(row_of(chosen({{kCooldown, bytes}}), kCooldown).codec == bytes);
  const CompressionPlan plain = chosen({{kCooldown, std::nullopt}});
  CHECK_FALSE(row_of(plain, kCooldown).codec);
  CHECK_THAT(row_of(plain, kCooldown).reason, Contains("the guard has left it no candidate"));
}

TEST_CASE("activations go through nothing coarser than 8-bit integers unless a config says so") {
  const CriticalPathPlan chosen = choose(kPolicy, {.pipeline = 2}, 1e6);
  for (const Phase phase : {Phase::warmup, Phase::steady}) {
    const CompressionPlan::Class& row = row_of(chosen.plan, {Site::pipeline_forward, 0, phase});
    REQUIRE(row.codec);
    CHECK(row.codec->kind == CodecKind::quantize);
    CHECK(row.codec->bits == 8);
    CHECK(row.codec->error_feedback == ErrorFeedback::none);
  }
}

TEST_CASE(
    "a site's codec is its only candidate, its candidates come before it, others stay plain") {
  const auto sites = [](const std::string& section) {
    return candidates_of(read(section), job_of(kMesh));
  };
  CHECK(sites(kPolicy).size() == 4);
  const auto set = sites(R"({"policy": "critical_path", "data_gradient": {"codec": "cast"}})");
  CHECK(set.size() == 1);
  CHECK(set.at(Site::data_gradient) == std::vector<CodecSetting>{{.kind = CodecKind::cast}});
  const auto listed = sites(R"({"policy": "critical_path", "data_gradient": {"codec": "cast",
      "candidates": [{"codec": "low_rank", "rank": 2}, {"codec": "low_rank", "rank": 4}]}})");
  CHECK(listed.at(Site::data_gradient) == std::vector<CodecSetting>{{.rank = 2}, {.rank = 4}});
  const CriticalPathPlan chosen =
      choose(R"({"policy": "critical_path", "pipeline_backward": {"codec": "cast"}})", kMesh, 1e7);
  CHECK(row_of(chosen.plan, kCooldown).codec == CodecSetting{.kind = CodecKind::cast});
  CHECK_FALSE(row_of(chosen.plan, kGradients).codec);
  CHECK_THAT(row_of(chosen.plan, kGradients).reason, Contains("no candidate"));
}

TEST_CASE("a codec that takes longer than it saves is not chosen") {
  const std::string section = R"({"policy": "critical_path", "data_gradient": {"codec": "cast"}})";
  const ParallelConfig data{.data = 2};
  const MeshJob job = job_of(data);
  REQUIRE(choose(section, data, 1e7).plan.compresses_anything());
  StepCosts slow;
  for (const CandidateMessage& message : candidate_messages(read(section), job)) {
    CHECK(message.ranks == 2);
    slow.codecs.push_back(
        {.codec = message.codec, .shape = message.shape, .encode = {1.0}, .decode = {1.0}});
  }
  const CriticalPathPlan chosen = choose(section, data, 1e7, slow);
  CHECK_FALSE(chosen.plan.compresses_anything());
  CHECK_THAT(row_of(chosen.plan, kGradients).reason, Contains("cast would win nothing"));
}

TEST_CASE("the predicted step is that of the plan's costs, the same in a second call") {
  const CriticalPathPlan chosen = choose(kPolicy, kMesh, 3e7);
  const CriticalPathPlan again = choose(kPolicy, kMesh, 3e7);
  CHECK(chosen.plan == again.plan);
  CHECK(chosen.step == again.step);
  const MeshJob job = job_of(kMesh);
  schedule::CostModel costs = cost_model(job, costs_of(2), cluster_of(3e7));
  for (const ClassBytes& row : class_bytes(job, chosen.plan)) {
    costs.compressed[row.members] = class_cost(row, codec_seconds_or_assumed(row, costs_of(2)));
  }
  const schedule::Schedule schedule = make_rank_plan(job, {}).executor.schedule;
  CHECK(schedule::make_timeline(schedule, costs).step.value == Approx(chosen.step.value));
}

TEST_CASE("every candidate is measured once for each shape, frames of a sum as often as ranks") {
  const std::string section = R"({"policy": "critical_path",
      "pipeline_backward": {"candidates": [{"codec": "cast"}, {"codec": "low_rank", "rank": 2}]},
      "data_gradient": {"codec": "quantize", "bits": 8}})";
  const std::vector<CandidateMessage> messages = candidate_messages(read(section), job_of(kMesh));
  CHECK(std::count_if(messages.begin(), messages.end(), [](const CandidateMessage& message) {
          return message.ranks == 0;
        }) == 2);
  const std::vector<CodecTimes> times = measure_codecs(messages, 64, 1);
  REQUIRE(times.size() == messages.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    CHECK(times[i].setting == messages[i].codec);
    CHECK(times[i].encode.calls == 2);
    CHECK(times[i].encode.seconds > 0.0);
    CHECK(times[i].decode.seconds > 0.0);
  }
}

}  // namespace slackline
