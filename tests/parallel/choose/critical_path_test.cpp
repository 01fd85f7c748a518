#include "parallel/choose/critical_path.h"

#include <algorithm>
#include <string>

#include "core/json_reader.h"
#include "parallel/plan/class_bytes.h"
#include "parallel/plan/class_costs.h"
#include "parallel/predict/timeline/timeline.h"
#include "tests/support/catch.h"

namespace slackline {

using Catch::Contains;

namespace {

using schedule::Phase;
using schedule::Seconds;
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
  costs.errors = more.errors;
  return choose_critical_path(
      read(section), job_of(mesh), costs, cluster_of(bytes_per_second), limits);
}

const CompressionPlan::Class& row_of(const CompressionPlan& plan, const TransferClass& members) {
  return *std::find_if(plan.classes.begin(),
                       plan.classes.end(),
                       [&](const CompressionPlan::Class& row) { return row.members == members; });
}

constexpr TransferClass kCooldown{Site::pipeline_backward, 1, Phase::cooldown};
constexpr TransferClass kGradients{Site::data_gradient, 0, Phase::tail};
constexpr TransferClass kLateGradients{Site::data_gradient, 1, Phase::tail};

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

TEST_CASE("of what a strategy shares out, sums between groups and of passes are compressed") {
  const auto chosen = [](const char* letters, double bytes_per_second) {
    ParallelConfig mesh{.data = 4};
    mesh.group = 2;
    mesh.data_strategy = *data_strategy_named(letters);
    return choose(kPolicy, mesh, bytes_per_second);
  };
  for (const char* letters : {"NNI", "NIG", "III"}) {
    INFO(letters);
    const CriticalPathPlan slow = chosen(letters, 1e6);
    CHECK(row_of(slow.plan, kGradients).codec);
    CHECK_THAT(row_of(slow.plan, kGradients).reason, Contains("wins"));
    CHECK(slow.step < slow.plain_step);
    CHECK_FALSE(chosen(letters, 1e12).plan.compresses_anything());
  }
  for (const char* letters : {"NGG", "GGG", "IGG"}) {
    INFO(letters);
    const CriticalPathPlan slow = chosen(letters, 1e6);
    const CompressionPlan::Class& row = row_of(slow.plan, kGradients);
    REQUIRE(row.codec);
    CHECK(row.codec->kind == CodecKind::quantize);  // no low rank where a config does not ask
    CHECK_THAT(row.reason, Contains("in passes, quantize 4 wins"));
    CHECK(slow.step < 0.95 * slow.plain_step);  // gathers stay plain
    const CriticalPathPlan fast = chosen(letters, 1e12);
    CHECK_FALSE(fast.plan.compresses_anything());
    CHECK(fast.step == fast.plain_step);
    CHECK_THAT(row_of(fast.plan, kGradients).reason, Contains("in passes") && Contains("plain"));
  }
}

TEST_CASE("weights that passes gather are coded where a config names a codec and links are slow") {
  ParallelConfig mesh{.data = 2};
  mesh.data_strategy = *data_strategy_named("zero3");
  const std::string named = R"({"policy": "critical_path",
                                "parameter_gather": {"codec": "quantize", "bits": 8}})";
  constexpr TransferClass kGathers{Site::parameter_gather, 0, Phase::steady};
  const CriticalPathPlan slow = choose(named, mesh, 1e6);
  REQUIRE(row_of(slow.plan, kGathers).codec);
  CHECK(row_of(slow.plan, kGathers).codec->bits == 8);
  CHECK_THAT(row_of(slow.plan, kGathers).reason, Contains("in passes, quantize 8 wins"));
  CHECK(row_of(slow.plan, kGradients).codec);  // by default as without it
  CHECK(slow.step < choose(kPolicy, mesh, 1e6).step);
  const CriticalPathPlan fast = choose(named, mesh, 1e12);
  CHECK_FALSE(fast.plan.compresses_anything());
  CHECK(row_of(fast.plan, kGathers).members == kGathers);
}

TEST_CASE("sums of passes that compute for longer stay plain beside compressed ones") {
  ParallelConfig mesh = kMesh;
  mesh.data_strategy = *data_strategy_named("zero2");
  StepCosts costs = costs_of(2);
  for (OpCost& op : costs.ops) {
    op.seconds = op.stage == 1 && op.kind == CostKind::backward ? Seconds{1.0} : op.seconds;
  }
  const CriticalPathPlan chosen =
      choose_critical_path(read(kPolicy), job_of(mesh), costs, cluster_of(4e5), {});
  const auto of_stage = [&](int stage) {
    return row_of(chosen.plan, {Site::data_gradient, stage, Phase::tail});
  };
  CHECK(of_stage(0).codec);
  CHECK_FALSE(of_stage(1).codec);
  CHECK(chosen.step < chosen.plain_step);
}

TEST_CASE("codecs of passes that take longer than they save are not taken") {
  ParallelConfig mesh{.data = 2};
  mesh.data_strategy = *data_strategy_named("zero2");
  StepCosts slow = costs_of(1);
  slow.codecs_take_compute = true;
  for (const CandidateMessage& message : candidate_messages(read(kPolicy), job_of(mesh))) {
    slow.codecs.push_back({.codec = message.codec,
                           .shape = message.shape,
                           .encode = Seconds{0.5},
                           .decode = Seconds{0.5}});
  }
  const auto choose_by = [&](const StepCosts& costs) {
    return choose_critical_path(read(kPolicy), job_of(mesh), costs, cluster_of(1e7), {}).plan;
  };
  REQUIRE_FALSE(slow.codecs.empty());
  CHECK(choose_by(costs_of(1)).compresses_anything());
  CHECK_FALSE(choose_by(slow).compresses_anything());
}

TEST_CASE("a step with codecs in passes is predicted as it was chosen") {
  ParallelConfig mesh = kMesh;
  mesh.data_strategy = *data_strategy_named("zero3");
  const MeshJob job = job_of(mesh);
  const CriticalPathPlan chosen =
      choose_critical_path(read(kPolicy), job, costs_of(2), cluster_of(1e6), {});
  REQUIRE(chosen.plan.compresses_any_of(Site::data_gradient));
  const MeshLists lists(job);
  schedule::CostModel costs = cost_model(lists, costs_of(2), cluster_of(1e6), chosen.plan);
  costs.compressed = class_costs(lists, chosen.plan, costs_of(2));
  CHECK(schedule::make_timeline(lists.schedule(), costs).step.value == Approx(chosen.step.value));
}

TEST_CASE("sums that the backward pass hides stay plain beside a compressed tail") {
  MeshJob job = job_of({.data = 2});
  job.model.layers = 12;
  job.model.hidden = 512;
  job.model.ffn = 2048;
  StepCosts costs;
  costs.ops = {{.kind = CostKind::forward, .seconds = {0.1}},
               {.kind = CostKind::backward, .seconds = {2.0}}};
  const CriticalPathPlan chosen =
      choose_critical_path(read(kPolicy), job, costs, cluster_of(2e8), {});
  const CompressionPlan::Class& hidden = row_of(chosen.plan, {Site::data_gradient, 0, Phase::step});
  CHECK_FALSE(hidden.codec);
  CHECK_THAT(hidden.reason, Contains("hidden by"));
  CHECK(row_of(chosen.plan, {Site::data_gradient, 0, Phase::tail}).codec);
}

TEST_CASE("a class that a guard has changed gets nothing that loses more than what it left") {
  const char* const coarse = R"({"policy": "critical_path", "guard": {"max_error": null},
      "pipeline_backward": {"candidates":
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

TEST_CASE("what was measured to lose more than the guard lets pass is left out") {
  const char* const ranks = R"({"policy": "critical_path", "guard": {"max_error": 0.5},
      "data_gradient": {"candidates": [{"codec": "low_rank", "rank": 1},
                                       {"codec": "low_rank", "rank": 4}]}})";
  const auto chosen = [&](double of_rank_1, double of_rank_4) {
    StepCosts costs;
    costs.errors.note_trial(
        {.members = kGradients, .codec = {.rank = 1}, .relative_error = of_rank_1});
    costs.errors.note_trial(
        {.members = kGradients, .codec = {.rank = 4}, .relative_error = of_rank_4});
    return choose(ranks, {.data = 2}, 1e5, costs).plan;
  };
  CHECK(row_of(chosen(0.4, 0.3), kGradients).codec->rank == 1);
  CHECK(row_of(chosen(0.6, 0.3), kGradients).codec->rank == 4);
  const CompressionPlan plain = chosen(0.6, 0.6);
  CHECK_FALSE(row_of(plain, kGradients).codec);
  CHECK_THAT(row_of(plain, kGradients).reason, Contains("lose more than the guard lets pass"));
}

TEST_CASE("a low rank that owes is chosen where it loses next to nothing, integers before") {
  const char* const both = R"({"policy": "critical_path", "guard": {"max_error": 0.5},
      "data_gradient": {"candidates": [
          {"codec": "low_rank", "rank": 1, "error_feedback": "immediate"},
          {"codec": "quantize", "bits": 4, "error_feedback": "immediate"}]}})";
  const CodecSetting rank{.error_feedback = ErrorFeedback::immediate, .rank = 1};
  const auto chosen = [&](double of_rank) {
    StepCosts costs;
    costs.errors.note_trial({.members = kGradients, .codec = rank, .relative_error = of_rank});
    return row_of(choose(both, {.data = 2}, 1e5, costs).plan, kGradients).codec->kind;
  };
  CHECK(chosen(0.0048) == CodecKind::low_rank);  // twenty times that owed, of a fifth of 0.5
  CHECK(chosen(0.0052) == CodecKind::quantize);
}

TEST_CASE("of codecs that win as much the one that was measured to lose least is chosen") {
  const char* const ranks = R"({"policy": "critical_path", "guard": {"max_error": null},
      "data_gradient": {"candidates": [
          {"codec": "low_rank", "rank": 1},
          {"codec": "low_rank", "rank": 1, "orthogonalization": "gram_schmidt"}]}})";
  const CodecSetting blocked{.rank = 1};
  const CodecSetting other{.rank = 1, .orthogonalization = Orthogonalization::gram_schmidt};
  const auto chosen = [&](double of_blocked, double of_other) {
    StepCosts costs;
    costs.errors.note_trial(
        {.members = kGradients, .codec = blocked, .relative_error = of_blocked});
    costs.errors.note_trial({.members = kGradients, .codec = other, .relative_error = of_other});
    return row_of(choose(ranks, {.data = 2}, 1e6, costs).plan, kGradients).codec;
  };
  CHECK(chosen(0.9, 0.1) == other);
  CHECK(chosen(0.1, 0.9) == blocked);
}

TEST_CASE("sums of more ranks than two, of which each needs all, may be made in two shots") {
  const auto offers_two_shots = [](const ParallelConfig& mesh, const char* section = kPolicy) {
    const auto candidates = candidates_of(read(section), job_of(mesh));
    const auto is_in_two = [](const CodecSetting& one) { return one.sum == SumWay::two_shot; };
    for (const Site site : {Site::pipeline_forward, Site::pipeline_backward}) {
      if (candidates.contains(site)) {
        CHECK(std::ranges::none_of(candidates.at(site), is_in_two));
      }
    }
    return std::ranges::count_if(candidates.at(Site::data_gradient), is_in_two);
  };
  CHECK(offers_two_shots({.data = 2}) == 0);
  CHECK(offers_two_shots({.data = 4}) == 2);  // of 8 and of 4 bits
  CHECK(offers_two_shots({.pipeline = 2, .data = 4}) == 2);
  CHECK(offers_two_shots({.data = 4, .data_strategy = DataStrategy::zero1}) == 0);
  CHECK(offers_two_shots({.data = 4, .group = 2, .data_strategy = *data_strategy_named("NII")}) ==
        0);
  CHECK(offers_two_shots({.data = 6, .group = 2, .data_strategy = *data_strategy_named("NII")}) ==
        2);
  CHECK(offers_two_shots({.data = 4},
                         R"({"policy": "critical_path",
                             "data_gradient": {"codec": "quantize", "bits": 4}})") == 0);
  const char* const kInTwo = R"({"policy": "critical_path",
      "data_gradient": {"codec": "quantize", "bits": 4, "sum": "two_shot"}})";
  CHECK(offers_two_shots({.data = 4}, kInTwo) == 1);
  CHECK(offers_two_shots({.data = 2}, kInTwo) == 0);  // the same as gathered
  // A table of two stages is added up over all ranks of both, by levels or not.
  ParallelConfig levels{.pipeline = 2, .data = 4, .group = 2};
  levels.codes_sums = true;
  const auto candidates = candidates_of(read(kPolicy), job_of(levels));
  const auto in_two = [](const CodecSetting& one) { return one.sum == SumWay::two_shot; };
  CHECK(std::ranges::any_of(candidates.at(Site::embedding), in_two));
  CHECK(std::ranges::none_of(candidates.at(Site::data_gradient), in_two));
}

TEST_CASE("over more slow ranks than two integers are added up in two shots") {
  const auto way = [](int data) {
    const CriticalPathPlan chosen = choose(R"({"policy": "critical_path", "data_gradient": {
        "candidates": [{"codec": "quantize", "bits": 4},
                       {"codec": "quantize", "bits": 4, "sum": "two_shot"}]}})",
                                           {.data = data},
                                           1e6);
    return row_of(chosen.plan, kGradients).codec.value().sum;
  };
  CHECK(way(2) == SumWay::gather);  // the same bytes, and a smaller error
  CHECK(way(4) == SumWay::two_shot);
}

TEST_CASE("candidates follow the width of the model") {
  const auto ranks = [](int hidden) {
    MeshJob job = job_of(kMesh);
    job.model.hidden = hidden;
    std::vector<int> list;
    const auto candidates = candidates_of(read(kPolicy), job);
    for (const CodecSetting& setting : candidates.at(Site::embedding)) {
      if (setting.kind == CodecKind::low_rank) {
        CHECK(setting.factors == DType::bf16);
        CHECK(setting.error_feedback == ErrorFeedback::immediate);
        list.push_back(setting.rank);
      }
    }
    return list;
  };
  CHECK(ranks(1024) == std::vector<int>{256, 128, 64, 32});
  CHECK(ranks(128) == std::vector<int>{32, 16, 8, 4});
  CHECK(ranks(16) == std::vector<int>{4, 2, 1});
}

TEST_CASE("before steps are measured, what waits for sure goes by 8-bit integers") {
  const auto early = [](double bytes_per_second, const std::string& section) {
    return plans_before_measuring(read(section), job_of(kMesh), cluster_of(bytes_per_second));
  };
  const PlanHistory slow = early(1e5, kPolicy);
  REQUIRE(slow.size() == 1);
  CHECK(slow[0].from_step == 1);
  CHECK(begins_critical_path(slow));
  const CompressionPlan::Class& row = row_of(slow[0].plan, kGradients);
  CHECK_THAT(row.reason, Contains("before steps are measured: ") && Contains("wins"));
  int integers = 0;
  for (const CompressionPlan::Class& members : slow[0].plan.classes) {
    if (members.codec && members.codec->kind != CodecKind::cast) {  // where that wins as much
      CHECK(members.codec->kind == CodecKind::quantize);
      CHECK(members.codec->bits == 8);
      ++integers;
    }
  }
  CHECK(integers >= 4);
  CHECK_FALSE(early(1e12, kPolicy)[0].plan.compresses_anything());

  const PlanHistory warm = early(1e5, R"({"policy": "critical_path", "warmup_steps": 4})");
  REQUIRE(warm.size() == 2);
  CHECK_FALSE(warm[0].plan.compresses_anything());
  CHECK(warm[1].from_step == 5);
  CHECK(warm[1].plan == slow[0].plan);
  // Neither integers nor bf16 are among this site's own candidates.
  CHECK_FALSE(early(1e5, R"({"policy": "critical_path",
      "data_gradient": {"codec": "low_rank", "rank": 2}})")[0]
                  .plan.compresses_anything());
  CHECK_FALSE(early(1e5, R"({"policy": "critical_path", "guard": {"max_error": 1e-6}})")[0]
                  .plan.compresses_anything());
}

TEST_CASE("before steps are measured, what links twice as fast would not make wait is cast") {
  // Looked for: the fastest link over which gradients are compressed at all.
  bool cast = false;
  for (double rate = 1e12; rate > 1e5 && !cast; rate /= 1.2) {
    const PlanHistory plans =
        plans_before_measuring(read(kPolicy), job_of({.data = 2}), cluster_of(rate));
    const std::optional<CodecSetting> codec = row_of(plans[0].plan, kGradients).codec;
    if (codec) {
      CHECK(codec->kind == CodecKind::cast);
      cast = true;
    }
  }
  CHECK(cast);
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

TEST_CASE(
    "a boundary's messages are candidates that nothing adds, each once for a setting and a shape") {
  const std::vector<CandidateMessage> messages =
      candidate_messages(read(R"({"policy": "critical_path", "data_gradient": {"codec": "cast"},
          "pipeline_backward": {"candidates": [{"codec": "cast"}, {"codec": "low_rank", "rank": 2}]}})"),
                         job_of(kMesh));
  CHECK(std::ranges::count(messages, false, &CandidateMessage::is_added) == 2);
}

TEST_CASE("a codec that takes longer than it saves is not chosen") {
  const std::string section = R"({"policy": "critical_path", "data_gradient": {"codec": "cast"}})";
  const ParallelConfig data{.data = 2};
  const MeshJob job = job_of(data);
  REQUIRE(choose(section, data, 1e7).plan.compresses_anything());
  StepCosts slow;
  for (const CandidateMessage& message : candidate_messages(read(section), job)) {
    CHECK(message.is_added);
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
  for (const ClassBytes& row : class_bytes(MeshLists(job), chosen.plan)) {
    costs.compressed[row.members] =
        class_cost(row, codec_seconds_or_assumed(row.compressed, costs_of(2)));
  }
  const schedule::Schedule schedule = make_schedules(job)->training;
  CHECK(schedule::make_timeline(schedule, costs).step.value == Approx(chosen.step.value));
}

}  // namespace slackline
