// Costs of one layout, links of a cluster, and what a step of another layout then takes.

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "core/comm/collective_bytes.h"
#include "core/error.h"
#include "model/parameter_table.h"
#include "parallel/predict/assumed_costs.h"
#include "parallel/predict/axis_links.h"
#include "parallel/predict/bucket_times.h"
#include "parallel/predict/collective_times.h"
#include "parallel/predict/step_cost_model.h"
#include "tests/support/catch.h"
#include "tests/support/refusal.h"
#include "tests/tools/plan/planned_job.h"
#include "tools/plan/step_plan.h"

namespace slackline {

using Catch::Contains;

namespace {

constexpr double kMessage = 256.0 * 256.0 * 4.0;  // bytes of (N, C) in fp32

MeshJob job_with(const std::vector<std::string>& assignments) {
  return planned_config(assignments).mesh_job();
}

StepCosts stage_costs(int num_stages, double forward, double backward) {
  StepCosts costs;
  for (int stage = 0; stage < num_stages; ++stage) {
    costs.ops.push_back({.stage = stage, .kind = CostKind::forward, .seconds = {forward}});
    costs.ops.push_back({.stage = stage, .kind = CostKind::backward, .seconds = {backward}});
  }
  return costs;
}

Cluster even_cluster(int nodes, int devices, double latency, double bytes_per_second) {
  const Cluster::Link link{.latency_seconds = latency, .bytes_per_second = bytes_per_second};
  return {.nodes = {{.count = nodes, .devices = devices}}, .node_link = link, .network_link = link};
}

double step_seconds(const std::vector<std::string>& assignments,
                    const StepCosts& costs,
                    const LinkSpeeds& links = {}) {
  return make_step_plan(planned_job(assignments), costs, links).timeline.step.value;
}

std::string refusal(const std::vector<std::string>& assignments, const StepCosts& costs) {
  return testing::refusal_of<ConfigError>(
      [&] { return cost_model(job_with(assignments), costs, {}); });
}

}  // namespace

TEST_CASE("a step of stages that take the same is m + p - 1 passes forward and backward") {
  CHECK(step_seconds({}, stage_costs(1, 0.001, 0.002)) == Approx(8 * 0.003));
  const std::vector<std::string> pipeline = {"parallel.pipeline=4", "model.tie_embeddings=false"};
  CHECK(step_seconds(pipeline, stage_costs(4, 0.001, 0.002)) == Approx((8 + 3) * 0.003));
  StepCosts costs = stage_costs(4, 0.001, 0.002);
  costs.ops.push_back({.stage = 2, .kind = CostKind::optimizer, .seconds = {0.004}});
  CHECK(step_seconds(pipeline, costs) == Approx((8 + 3) * 0.003 + 0.004));
}

TEST_CASE("blocking messages of a pipeline cost their latency and bytes in every round") {
  const double message = 1e-5 + kMessage / 1e9;
  const double step = step_seconds({"parallel.pipeline=2",
                                    "parallel.transfers=blocking",
                                    "parallel.schedule=gpipe",
                                    "model.tie_embeddings=false"},
                                   stage_costs(2, 0.001, 0.002),
                                   even_cluster(1, 2, 1e-5, 1e9));
  // The first stage waits for each of its 8 sends before it goes on, and for each gradient.
  CHECK(step == Approx(9 * 0.003 + 8 * 2 * message).margin(3 * message));
  CHECK(step > 9 * 0.003 + 2 * message);
}

TEST_CASE(
    "gradients over data ranks cost two exchanges of a slice each, over two ranks one of all") {
  const int ranks = GENERATE(2, 4);
  const std::vector<std::string> data = {"parallel.data=" + std::to_string(ranks), "batch.micro=1"};
  const MeshJob job = job_with(data);
  const schedule::CostModel model =
      cost_model(job, stage_costs(1, 0.001, 0.002), even_cluster(1, ranks, 1e-4, 1e9));
  const std::vector<PlacedBucket> buckets = placed_buckets(MeshLists(job), 0);
  REQUIRE(model.chunks[0].data_reduction.size() == buckets.size());
  double elements = 0.0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const auto bytes = static_cast<double>(buckets[i].bytes);
    const schedule::Bucket& bucket = model.chunks[0].data_reduction[i];
    CHECK(bucket.seconds.value ==
          Approx((exchanges_all(buckets[i].bytes, ranks) ? 1.0 : 2.0 / ranks) * bytes / 1e9));
    CHECK(bucket.exchanges.plain == (ranks == 2 || bytes <= 4096.0 ? 1 : 2));
    CHECK(bucket.exchanges.latency.value == 1e-4);
    elements += bytes / 4.0;
  }
  CHECK(elements == Approx(static_cast<double>(num_parameters(job.model))));
  CHECK(model.chunks[0].parameter_gather.empty());

  std::vector<std::string> sharded = data;
  sharded.emplace_back("parallel.data_strategy=zero1");
  const schedule::CostModel zero1 = cost_model(
      job_with(sharded), stage_costs(1, 0.001, 0.002), even_cluster(1, ranks, 1e-4, 1e9));
  REQUIRE(zero1.chunks[0].parameter_gather.size() == buckets.size());
  const schedule::Bucket& scattered = zero1.chunks[0].data_reduction[0];
  CHECK(2.0 * scattered.seconds.value == Approx(model.chunks[0].data_reduction[0].seconds.value));
  CHECK(scattered.exchanges.plain == 1);
  CHECK(zero1.chunks[0].parameter_gather[0].exchanges.latency.value == 1e-4);
}

TEST_CASE("buckets of later layers are complete earlier in backward and needed later in forward") {
  const MeshJob job = job_with({"model.hidden=1024", "parallel.data=2", "batch.micro=1"});
  const std::vector<PlacedBucket> buckets = placed_buckets(MeshLists(job), 0);
  REQUIRE(buckets.size() > 4);
  CHECK(buckets.front().reduce_at < 0.3);
  CHECK(buckets.front().gather_at > 0.7);
  for (std::size_t i = 1; i + 2 < buckets.size(); ++i) {
    CHECK(buckets[i].reduce_at > buckets[i - 1].reduce_at);
    CHECK(buckets[i].gather_at < buckets[i - 1].gather_at);
  }
  CHECK(buckets.back().reduce_at == 1.0);  // the tied table
}

TEST_CASE("what passes add up in groups crosses between them a layer later") {
  const std::vector<std::string> groups = {"parallel.data=4", "parallel.group=2", "batch.micro=1"};
  const auto placed = [&](const std::string& strategy) {
    std::vector<std::string> all = groups;
    all.push_back("parallel.data_strategy=" + strategy);
    return placed_buckets(MeshLists(job_with(all)), 0);
  };
  CHECK(placed("NNI").front().reduce_at < 0.5);
  for (const char* strategy : {"NII", "III", "NIG"}) {
    const std::vector<PlacedBucket> later = placed(strategy);
    // Those of layers stand first: the eighth layer's sum begins with the seventh's gradients.
    CHECK(later.front().reduce_at > 0.25);
    CHECK(later.front().reduce_at < 0.5);
    for (std::size_t i = 1; i < later.size(); ++i) {
      CHECK(later[i].reduce_at >= later[i - 1].reduce_at);
    }
    CHECK(later.back().reduce_at == 1.0);
  }
}

// A gather of NIG goes between nodes and inside them, one exchange each.
TEST_CASE("exchanges over several links have the latency of each") {
  Cluster cluster = even_cluster(2, 2, 1e-5, 1e9);
  cluster.network_link.latency_seconds = 0.05;
  const MeshJob job = job_with(
      {"parallel.data=4", "parallel.group=2", "batch.micro=1", "parallel.data_strategy=NNG"});
  MeshJob grouped = job;
  grouped.parallel.data_strategy = *data_strategy_named("NIG");
  const schedule::CostModel model = cost_model(grouped, stage_costs(1, 0.001, 0.002), cluster);
  const schedule::Bucket& gather = model.chunks[0].parameter_gather[0];
  REQUIRE(gather.exchanges.plain == 2);
  CHECK(2.0 * gather.exchanges.latency.value == Approx(0.05 + 1e-5));
}

TEST_CASE("tensor ranks add two sums a layer to each pass, less what hides them") {
  const MeshJob job = job_with({"parallel.tensor=2"});
  const StepCosts costs = stage_costs(1, 0.001, 0.002);
  const double sum = 1e-5 + kMessage / 1e9;
  const double slices = 1e-5 + kMessage / 2.0 / 1e9;  // a reduce-scatter or a gather
  const double statistics = 1e-5 + 256.0 * 3.0 * 4.0 / 1e9;
  const schedule::CostModel model = cost_model(job, costs, even_cluster(1, 2, 1e-5, 1e9));
  const auto seconds = [](const schedule::CostModel& of, schedule::OpKind kind) {
    return op_seconds(of, {.kind = kind}).value;
  };
  CHECK(seconds(model, schedule::OpKind::forward) == Approx(0.001 + (2 * 8 + 1) * sum));
  // In backward the weight gradients of qkv and expansion (7 of a layer's 12 units of C x C) and of
  // the table hide their share of a token's operations: 4 C F for a matrix, 6 C V for the table.
  const double product = 2.0 * 256.0 * 256.0;
  const double attention = 4.0 * 256.0 * 128.0;
  const double all = 8.0 * (24.0 * product + attention) + 3.0 * product + 2.0 * 256.0;
  const double hidden = 0.002 * (8.0 * 7.0 * product + product) / all;
  CHECK(seconds(model, schedule::OpKind::backward) ==
        Approx(0.002 + (2 * 8 + 1) * sum - hidden + statistics));
  const MeshJob cut = job_with({"parallel.tensor=2", "parallel.sequence_parallel=true"});
  CHECK(
      seconds(cost_model(cut, costs, even_cluster(1, 2, 1e-5, 1e9)), schedule::OpKind::backward) ==
      Approx(0.002 + (6 * 8 + 3) * slices - 2 * 8 * 1e-5 + statistics));
  CHECK(seconds(cost_model(job, costs, {}), schedule::OpKind::forward) == Approx(0.001));
}

TEST_CASE("costs of parts predict another split, batch and tensor degree") {
  const StepCosts one_rank = with_parts(job_with({}), [] {
    StepCosts costs = stage_costs(1, 0.008, 0.016);
    costs.ops.push_back({.kind = CostKind::layer_forward, .seconds = {0.001 / 256.0}});
    costs.ops.push_back({.kind = CostKind::embedding_forward, .seconds = {0.0}});
    costs.ops.push_back({.kind = CostKind::head_forward, .seconds = {0.0}});
    return costs;
  }());
  const std::vector<std::string> split = {"parallel.pipeline=2", "parallel.stage_layers=[5,3]"};
  const schedule::CostModel stages = cost_model(job_with(split), one_rank, {});
  CHECK(stages.chunks[0].forward.value == Approx(0.005));
  CHECK(stages.chunks[1].forward.value == Approx(0.003));
  CHECK((stages.chunks[0].backward_input + stages.chunks[1].backward_input).value == Approx(0.016));
  CHECK(cost_model(job_with({"batch.micro=4"}), one_rank, {}).chunks[0].forward.value ==
        Approx(0.016));
  CHECK(cost_model(job_with({"parallel.tensor=4"}), one_rank, {}).chunks[0].forward.value ==
        Approx(0.002));
}

TEST_CASE("costs measured on the same layout are used as they are") {
  StepCosts measured = stage_costs(2, 0.001, 0.002);
  measured.ops[2].seconds = {0.009};  // one slow stage, which parts would even out
  const MeshJob job = job_with({"parallel.pipeline=2"});
  const StepCosts costs = with_parts(job, measured);
  CHECK(cost_model(job, costs, {}).chunks[1].forward.value == Approx(0.009));
  const schedule::CostModel other = cost_model(job_with({"parallel.pipeline=4"}), costs, {});
  double forward = 0.0;
  for (const schedule::ChunkCosts& chunk : other.chunks) {
    forward += chunk.forward.value;
  }
  CHECK(forward == Approx(0.010));
}

TEST_CASE("a whole backward pass is split for zero-bubble schedules") {
  const std::vector<std::string> zb = {"parallel.pipeline=2", "parallel.schedule=zb_h1"};
  const schedule::CostModel model = cost_model(job_with(zb), stage_costs(2, 0.001, 0.002), {});
  CHECK(model.chunks[0].backward_weight.value > 0.0005);
  CHECK(model.chunks[0].backward_weight < model.chunks[0].backward_input);
  // The head, whose table's gradient is made with its input's, leaves the last stage less to split.
  const MeshJob job = job_with(zb);
  const schedule::CostModel by_parts = cost_model(job, assumed_costs(job.model, {}), {});
  for (std::size_t i = 0; i < 2; ++i) {
    const schedule::ChunkCosts& chunk = model.chunks[i];
    const schedule::ChunkCosts& other = by_parts.chunks[i];
    CHECK((chunk.backward_input + chunk.backward_weight).value == Approx(0.002));
    CHECK(chunk.backward_weight / chunk.backward_input ==
          Approx(other.backward_weight / other.backward_input));
  }
}

TEST_CASE(
    "what is not measured is assumed at the speed of the slowest device that a cluster names") {
  Cluster cluster = even_cluster(2, 2, 0.0, 1e12);
  CHECK(assumed_speeds(cluster, DType::f32) == AssumedSpeeds{});
  CHECK(assumed_speeds({}, DType::f32) == AssumedSpeeds{});
  cluster.nodes.push_back(cluster.nodes.front());
  cluster.nodes[0].device = {
      .fp32_flops = 1e13, .bf16_flops = 4e14, .memory_bytes_per_second = 1e12, .efficiency = 0.5};
  cluster.nodes[1].device = {
      .fp32_flops = 2e13, .bf16_flops = 1e14, .memory_bytes_per_second = 2e12, .efficiency = 0.5};
  CHECK(assumed_speeds(cluster, DType::f32).flops_per_second == 0.5 * 1e13);
  CHECK(assumed_speeds(cluster, DType::bf16).flops_per_second == 0.5 * 1e14);
  CHECK(assumed_speeds(cluster, DType::f32).bytes_per_second == Approx(0.8 * 1e12));

  // Ops and codecs of a plan both go by them.
  const PlanJob job = planned_job({"parallel.data=2", "batch.micro=1"});
  const StepPlan slow = make_step_plan(job, {}, even_cluster(2, 2, 0.0, 1e12));
  const StepPlan fast = make_step_plan(job, {}, cluster);
  CHECK(slow.timeline.step / fast.timeline.step > 20.0);
  CHECK(fast.costs.speeds == assumed_speeds(cluster, DType::f32));
  const CodecSetting rank{.kind = CodecKind::low_rank, .rank = 4};
  CHECK(codec_cost(slow.costs, rank, {64, 64}).encode /
            codec_cost(fast.costs, rank, {64, 64}).encode >
        20.0);
}

TEST_CASE("measured transfers count only where links are not known") {
  StepCosts costs = stage_costs(2, 0.001, 0.002);
  costs.ops.push_back({.stage = 1, .kind = CostKind::data_reduction, .seconds = {0.5}});
  costs.ops.push_back({.kind = CostKind::embedding_sync, .seconds = {0.25}});
  const MeshJob job = job_with({"parallel.pipeline=2", "parallel.data=2", "batch.micro=1"});
  const auto reduction = [](const schedule::CostModel& model) {
    schedule::Seconds sum{};
    for (const schedule::Bucket& bucket : model.chunks[1].data_reduction) {
      sum += bucket.seconds;
    }
    return sum.value;
  };
  CHECK(reduction(cost_model(job, costs, {})) == Approx(0.5));
  CHECK(cost_model(job, costs, {}).embedding_sync.value == Approx(0.25));
  const Cluster quick = even_cluster(1, 4, 0.0, 1e12);
  CHECK(reduction(cost_model(job, costs, quick)) < 0.001);
  CHECK(cost_model(job, costs, quick).embedding_sync.value < 0.001);
}

TEST_CASE("a tied table apart is summed as the data axis is, and gathered at both ends by zero1") {
  const auto model = [](const std::string& strategy) {
    return cost_model(job_with({"parallel.pipeline=2",
                                "parallel.data=4",
                                "batch.micro=1",
                                "parallel.embedding_sync=separate",
                                "parallel.data_strategy=" + strategy}),
                      stage_costs(2, 0.001, 0.002),
                      even_cluster(1, 8, 1e-4, 1e9));
  };
  const schedule::CostModel whole = model("replicate");
  const schedule::CostModel shared = model("zero1");
  CHECK(whole.embedding_exchanges.plain == 3);  // the pair's, and two of the data axis
  CHECK(shared.embedding_exchanges.plain == 2);
  CHECK(shared.embedding_exchanges.sum == 3);
  for (const std::size_t end : {std::size_t{0}, std::size_t{1}}) {
    const std::vector<schedule::Bucket>& gathers = shared.chunks[end].parameter_gather;
    CHECK(gathers.size() == shared.chunks[end].data_reduction.size() + 1);
    const schedule::Seconds table = end == 0 ? gathers.front().seconds : gathers.back().seconds;
    CHECK((shared.embedding_sync + table).value == Approx(whole.embedding_sync.value));
    CHECK(whole.chunks[end].parameter_gather.empty());
  }
}

TEST_CASE("ranks of a node share its link out, pairs do not") {
  Cluster cluster = even_cluster(2, 4, 0.0, 1e9);
  const ParallelConfig mesh{.tensor = 2, .pipeline = 2, .data = 2};
  CHECK(boundary_link(mesh, cluster, 0, 1).bytes_per_second == Approx(2e9));
  cluster.network_link.shared_by = Cluster::SharedBy::node;
  CHECK(boundary_link(mesh, cluster, 0, 1).bytes_per_second == Approx(2e9 / 4.0));
  CHECK(group_link(mesh, cluster, "tensor", 0).bytes_per_second == Approx(1e9));
  cluster.node_link.shared_by = Cluster::SharedBy::node;
  // Two groups of two on the node: four messages at once.
  CHECK(group_link(mesh, cluster, "tensor", 0).bytes_per_second == Approx(1e9 / 4.0));
  cluster.node_link = {.bytes_per_second = 1e9, .duplex = false};
  CHECK(group_link(mesh, cluster, "tensor", 0).bytes_per_second == Approx(1e9 / 2.0));
}

TEST_CASE("measured links join the nodes of a cost file, and as many more as ranks need") {
  StepCosts costs{.nodes = {{.devices = 1}, {.count = 2, .devices = 2}}};
  CHECK_FALSE(measured_links(costs, 5));
  costs.network_link = Cluster::Link{.bytes_per_second = 1e6};
  CHECK(measured_links(costs, 5)->nodes_of_ranks(5) == std::vector<int>{0, 1, 1, 2, 2});
  CHECK(measured_links(costs, 8)->nodes_of_ranks(8) == std::vector<int>{0, 1, 1, 2, 2, 3, 3, 4});
  costs.nodes.clear();
  CHECK(measured_links(costs, 3)->nodes_of_ranks(3) == std::vector<int>{0, 0, 0});
}

TEST_CASE("the link of a group is that of its farthest ranks: in a node, at a switch, or beyond") {
  Cluster cluster = even_cluster(4, 2, 0.0, 1e8);
  cluster.nodes_per_switch = 2;
  cluster.switch_link = {
      .latency_seconds = 1e-3, .bytes_per_second = 1e9, .shared_by = Cluster::SharedBy::node};
  cluster.node_link.bytes_per_second = 1e10;
  cluster.network_link.latency_seconds = 5e-3;
  const auto bytes_per_second = [&](int group) {
    return data_links({.data = 8, .group = group}, cluster, 0).inside.bytes_per_second;
  };
  CHECK(bytes_per_second(2) == Approx(1e10));
  // Both ranks of a node send to both of the other one.
  CHECK(bytes_per_second(4) == Approx(1e9 / 4.0));
  const CollectiveLinks nodes = data_links({.data = 8, .group = 2}, cluster, 0);
  CHECK(nodes.to_groups.bytes_per_second == Approx(1e8));
  CHECK(data_links({.data = 8, .group = 4}, cluster, 0).to_group.latency.value == 5e-3);
  const auto agreement = [&](int ranks) {
    return agreement_seconds({.data = ranks}, cluster, 1).value;
  };
  CHECK(agreement(2) == 0.0);
  CHECK(agreement(4) == 1e-3);
  CHECK(agreement(8) == 5e-3);
}

TEST_CASE("stages of a node sum their gradients over its adapter one after another") {
  // Each node has a whole pipeline.
  const std::vector<std::string> mesh = {"parallel.pipeline=4",
                                         "parallel.data=2",
                                         "parallel.group=1",
                                         "batch.micro=1",
                                         "model.tie_embeddings=false"};
  const StepCosts costs = stage_costs(4, 1e-6, 2e-6);
  const auto step = [&](Cluster::SharedBy shared_by, const std::string& strategy) {
    Cluster cluster = even_cluster(2, 4, 0.0, 1e8);
    cluster.node_link.bytes_per_second = 1e13;
    cluster.network_link.shared_by = shared_by;
    std::vector<std::string> settings = mesh;
    settings.push_back("parallel.data_strategy=" + strategy);
    return step_seconds(settings, costs, cluster);
  };
  const MeshJob job = job_with(mesh);
  double all = 0.0;
  double most = 0.0;
  for (int place = 0; place < 4; ++place) {
    double seconds = 0.0;
    for (const PlacedBucket& bucket : placed_buckets(MeshLists(job), place)) {
      seconds += static_cast<double>(bucket.bytes) / 1e8;
    }
    all += seconds;
    most = std::max(most, seconds);
  }
  CHECK(step(Cluster::SharedBy::node, "replicate") >= all);
  CHECK(step(Cluster::SharedBy::node, "replicate") < 1.1 * all);
  CHECK(step(Cluster::SharedBy::pair, "replicate") < 1.1 * most);
  // Gathers and sums in passes share it, too.
  CHECK(step(Cluster::SharedBy::node, "zero3") > 2.0 * step(Cluster::SharedBy::pair, "zero3"));
}

TEST_CASE("messages of all tensor ranks are eager as long as each of them is") {
  Cluster cluster = even_cluster(2, 2, 0.0, 1e9);
  const ParallelConfig mesh{.tensor = 2, .pipeline = 2};
  CHECK(boundary_link(mesh, cluster, 0, 1).eager_bytes == 2.0 * kEagerBytes);
  cluster.network_link.eager_bytes = std::numeric_limits<double>::infinity();
  CHECK(boundary_link(mesh, cluster, 0, 1).eager_bytes == cluster.network_link.eager_bytes);
}

TEST_CASE("messages to both neighbours leave a node over one end, and reach it over another") {
  Cluster cluster = even_cluster(3, 1, 0.0, 1e9);
  const ParallelConfig mesh{.pipeline = 3};
  CHECK(boundary_link(mesh, cluster, 1, 2).ends == std::array<int, 2>{-1, -1});
  cluster.network_link.shared_by = Cluster::SharedBy::node;
  const auto ends = [&](int from, int to) { return boundary_link(mesh, cluster, from, to).ends; };
  CHECK(ends(1, 2)[0] == ends(1, 0)[0]);
  CHECK(ends(0, 1)[1] == ends(2, 1)[1]);
  CHECK(ends(0, 1)[0] != ends(1, 2)[0]);
  CHECK(ends(1, 2)[0] != ends(0, 1)[1]);
  cluster.network_link.duplex = false;
  CHECK(ends(1, 2)[0] == ends(0, 1)[1]);
}

TEST_CASE("a codec's cost is that of its shape, or of the nearest in size") {
  const CodecSetting codec{.rank = 4};
  const auto cost = [&](std::vector<std::int64_t> shape, double seconds) {
    return CodecCost{
        .codec = codec, .shape = std::move(shape), .encode = {seconds}, .decode = {2.0 * seconds}};
  };
  const StepCosts costs{.codecs = {cost({10, 10}, 1.0), cost({20, 5}, 3.0), cost({1000}, 20.0)}};
  CHECK(costs.of_codec(codec, {20, 5})->encode.value == 3.0);
  CHECK(costs.of_codec(codec, {10, 10})->encode.value == 1.0);
  CHECK(costs.of_codec(codec, {500})->encode.value == 10.0);
  CHECK(costs.of_codec(codec, {500})->decode.value == 20.0);
  CHECK(costs.of_codec(codec, {25, 2})->encode.value == 0.5);
  CHECK_FALSE(costs.of_codec({.rank = 8}, {10, 10}));
}

TEST_CASE("costs that do not cover a job are refused") {
  CHECK_THAT(refusal({"parallel.pipeline=2"}, stage_costs(1, 1.0, 1.0)),
             Contains("2 virtual stages") && Contains("got 1"));
  StepCosts costs = stage_costs(2, 1.0, 1.0);
  costs.ops.pop_back();
  CHECK_THAT(refusal({"parallel.pipeline=2"}, costs), Contains("\"backward_input\""));
  StepCosts parts{.ops = {{.kind = CostKind::layer_forward, .seconds = {1.0}}}};
  CHECK_THAT(refusal({}, parts), Contains("\"layer_backward_input\""));
  parts.ops.push_back({.kind = CostKind::layer_backward, .seconds = {1.0}});
  CHECK_THAT(refusal({}, parts), Contains("\"embedding_forward\""));
}

TEST_CASE("costs of another model are refused, those of more layers are not") {
  StepCosts costs = stage_costs(1, 1.0, 1.0);
  costs.model = job_with({}).model;
  CHECK(refusal({}, costs) == "accepted");
  costs.model->layers += 3;
  CHECK(refusal({}, costs) == "accepted");
  costs.model->hidden *= 2;
  CHECK_THAT(refusal({}, costs),
             Contains("hidden " + std::to_string(costs.model->hidden)) &&
                 Contains("got a config with hidden " + std::to_string(costs.model->hidden / 2)));
  costs.model = job_with({}).model;
  costs.model->recompute = Recompute::block;
  CHECK_THAT(refusal({}, costs), Contains("recompute"));
}

TEST_CASE("costs of another precision are refused") {
  StepCosts costs = stage_costs(1, 1.0, 1.0);
  costs.precision = DType::f32;
  CHECK(refusal({}, costs) == "accepted");
  CHECK_THAT(refusal({"precision=bf16"}, costs),
             Contains("measured in, fp32; got a config with bf16"));
}

}  // namespace slackline
