#include "parallel/predict/timeline/slack.h"

#include <algorithm>
#include <cstddef>
#include <random>

#include "tests/parallel/schedule/every_schedule.h"
#include "tests/parallel/schedule/members_of.h"
#include "tests/parallel/uniform_costs.h"
#include "tests/support/catch.h"

namespace slackline::schedule::testing {

namespace {

class RandomCosts {
 public:
  explicit RandomCosts(unsigned seed) : generator_(seed) {}

  CostModel make(const Schedule& schedule) {
    CostModel costs = uniform_costs(schedule.num_stages(), {});
    for (ChunkCosts& chunk : costs.chunks) {
      chunk = {.forward = draw(2.0),
               .backward_input = draw(2.0),
               .backward_weight = draw(2.0),
               .forward_bytes = {static_cast<std::size_t>(draw(900.0).value)},
               .backward_bytes = {static_cast<std::size_t>(draw(900.0).value)},
               .data_reduction = {{.at = 0.4, .seconds = draw(3.0)}, {1.0, draw(3.0)}},
               .parameter_gather = {{.at = 0.0, .seconds = draw(1.0)}}};
    }
    costs.link = {.latency = draw(0.3), .bytes_per_second = 1000.0};
    costs.embedding_sync = draw(1.0);
    costs.optimizer = draw(1.0);
    return costs;
  }

  Seconds draw(double most) {
    return {std::uniform_real_distribution<double>(0.01, most)(generator_)};
  }

 private:
  std::mt19937 generator_;
};

const Schedule kSmall[] = {
    make_schedule(Kind::one_f_one_b, {.num_ranks = 4, .num_micro_batches = 6}),
    make_schedule(Kind::one_f_one_b,
                  {.num_ranks = 3, .num_micro_batches = 5, .transfers = Transfers::blocking}),
    make_schedule(Kind::gpipe, {.num_ranks = 3, .num_micro_batches = 4}),
    make_schedule(Kind::interleaved, {.num_ranks = 2, .num_chunks = 2, .num_micro_batches = 4}),
    make_schedule(Kind::zb_h1, {.num_ranks = 4, .num_micro_batches = 5}),
};

// The step if a node took longer, the order of service being kept.
Seconds step_with_delay(const Timeline& timeline, int delayed, Seconds delay) {
  std::vector<Seconds> ends(timeline.nodes.size());
  Seconds step{};
  for (const int id : timeline.order) {
    const TimelineNode& node = timeline.nodes[static_cast<std::size_t>(id)];
    Seconds start = node.after.empty() ? node.start : Seconds{};
    for (const Edge& edge : node.after) {
      start = std::max(start, ends[static_cast<std::size_t>(edge.from)] + edge.lag);
    }
    ends[static_cast<std::size_t>(id)] =
        start + node.duration() + (id == delayed ? delay : Seconds{});
    step = std::max(step, ends[static_cast<std::size_t>(id)]);
  }
  return step;
}

}  // namespace

TEST_CASE("a delay within the slack leaves the step alone, one beyond it adds the rest") {
  RandomCosts random(7);
  for (const Schedule& schedule : kSmall) {
    const Timeline timeline = make_timeline(schedule, random.make(schedule));
    const std::vector<Seconds> slack = slack_of(timeline);
    for (std::size_t id = 0; id < timeline.nodes.size(); ++id) {
      const Seconds within = 0.99 * slack[id];
      const Seconds beyond = random.draw(1.0);
      const int node = static_cast<int>(id);
      CHECK(slack[id].value > -1e-9);
      CHECK(step_with_delay(timeline, node, within).value == Approx(timeline.step.value));
      CHECK(step_with_delay(timeline, node, slack[id] + beyond).value ==
            Approx((timeline.step + beyond).value));
    }
  }
}

TEST_CASE("a longer transfer, simulated anew, lengthens the step by what its slack says") {
  RandomCosts random(11);
  const Schedule& schedule = kSmall[0];  // one direction a link, so the order of service stays
  const CostModel costs = random.make(schedule);
  const Timeline timeline = make_timeline(schedule, costs);
  const std::vector<Seconds> slack = slack_of(timeline);
  for (std::size_t id = 0; id < timeline.nodes.size(); ++id) {
    const TimelineNode& node = timeline.nodes[id];
    if (node.kind != NodeKind::transfer) {
      continue;
    }
    CostModel longer = costs;
    longer.transfers[id_of_send(node.op)] = node.bytes + Bytes{500};
    const Seconds added = std::max(Seconds{0.5} - slack[id], Seconds{});
    CHECK(make_timeline(schedule, longer).step.value == Approx((timeline.step + added).value));
  }
}

TEST_CASE("the critical path has no slack and no gap") {
  RandomCosts random(3);
  for (const Schedule& schedule : kSmall) {
    const Timeline timeline = make_timeline(schedule, random.make(schedule));
    const std::vector<Seconds> slack = slack_of(timeline);
    const std::vector<int> path = critical_path(timeline);
    REQUIRE_FALSE(path.empty());
    CHECK(timeline.nodes[static_cast<std::size_t>(path.front())].start.value == 0.0);
    CHECK(timeline.nodes[static_cast<std::size_t>(path.back())].end == timeline.step);
    for (const int id : path) {
      CHECK(slack[static_cast<std::size_t>(id)].value == Approx(0.0).margin(1e-9));
    }
  }
}

TEST_CASE("each transfer is in one class, whose slack is its least") {
  RandomCosts random(5);
  for (const Schedule& schedule : kSmall) {
    const Timeline timeline = make_timeline(schedule, random.make(schedule));
    const std::vector<Seconds> slack = slack_of(timeline);
    int members = 0;
    for (const ClassSlack& row : class_slacks(timeline)) {
      Seconds least{1e9};
      for (std::size_t id = 0; id < timeline.nodes.size(); ++id) {
        const TimelineNode& node = timeline.nodes[id];
        const bool transfers = node.kind != NodeKind::op && node.kind != NodeKind::optimizer &&
                               node.kind != NodeKind::gradient_norm;
        if (transfers && node.members == row.members) {
          least = std::min(least, slack[id]);
          members += node.part == NodePart::whole ? 1 : 0;
        }
      }
      CHECK(row.slack == least);
    }
    int transfers = 1 + 3 * schedule.num_stages();  // embedding; two buckets and a gather each
    for (const std::vector<Op>& ops : schedule.ranks) {
      transfers += static_cast<int>(
          std::count_if(ops.begin(), ops.end(), [](const Op& op) { return is_send(op.kind); }));
    }
    CHECK(members == transfers);
  }
}

TEST_CASE(
    "phases of 1f1b: p - i forwards before the first backward, as many backwards at the end") {
  const Schedule schedule =
      make_schedule(Kind::one_f_one_b, {.num_ranks = 4, .num_micro_batches = 8});
  CHECK(members_of(schedule, {Site::pipeline_forward, 1, Phase::warmup}).size() == 3);
  CHECK(members_of(schedule, {Site::pipeline_forward, 1, Phase::steady}).size() == 5);
  CHECK(members_of(schedule, {Site::pipeline_forward, 1, Phase::cooldown}).empty());
  CHECK(members_of(schedule, {Site::pipeline_backward, 1, Phase::warmup}).empty());
  CHECK(members_of(schedule, {Site::pipeline_backward, 1, Phase::steady}).size() == 5);
  CHECK(members_of(schedule, {Site::pipeline_backward, 1, Phase::cooldown}) ==
        std::vector<TransferId>{{Site::pipeline_backward, 1, 5},
                                {Site::pipeline_backward, 1, 6},
                                {Site::pipeline_backward, 1, 7}});
}

TEST_CASE("gpipe has no steady phase: forwards warm up, backwards cool down") {
  const Schedule schedule = make_schedule(Kind::gpipe, {.num_ranks = 3, .num_micro_batches = 4});
  CHECK(members_of(schedule, {Site::pipeline_forward, 0, Phase::warmup}).size() == 4);
  CHECK(members_of(schedule, {Site::pipeline_backward, 1, Phase::cooldown}).size() == 4);
}

TEST_CASE("phases of every schedule are warm-up, steady, cool-down in this order") {
  for (const Schedule& schedule : kSmall) {
    for (const std::vector<Op>& ops : schedule.ranks) {
      const std::vector<Phase> phases = phases_of(ops);
      Phase before = Phase::warmup;
      for (std::size_t i = 0; i < ops.size(); ++i) {
        if (ops[i].kind != OpKind::forward && !makes_input_gradient(ops[i].kind)) {
          continue;
        }
        CHECK(phases[i] >= before);
        CHECK((phases[i] != Phase::warmup || ops[i].kind == OpKind::forward));
        CHECK((phases[i] != Phase::cooldown || ops[i].kind != OpKind::forward));
        before = phases[i];
      }
    }
  }
}

TEST_CASE("a class with a cost of its own changes its members and no others") {
  const Schedule schedule =
      make_schedule(Kind::one_f_one_b, {.num_ranks = 3, .num_micro_batches = 6});
  CostModel costs = uniform_costs(3, {.forward_bytes = {100}, .backward_bytes = {100}});
  const TransferClass changed{Site::pipeline_backward, 1, Phase::cooldown};
  costs.compressed[changed] = {.share = 0.3};
  for (const TimelineNode& node : make_timeline(schedule, costs).nodes) {
    if (node.kind == NodeKind::transfer) {
      CHECK(node.bytes.value == (node.members == changed ? 30 : 100));
    }
  }
}

}  // namespace slackline::schedule::testing
