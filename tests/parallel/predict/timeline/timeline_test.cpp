#include "parallel/predict/timeline/timeline.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "parallel/predict/timeline/slack.h"
#include "tests/parallel/schedule/every_schedule.h"
#include "tests/parallel/uniform_costs.h"
#include "tests/support/catch.h"

namespace slackline::schedule::testing {

namespace {

constexpr double kForward = 1.0;
constexpr double kBackward = 2.0;

// Forward 1 s, backward 2 s, and messages of 1000 bytes that take `message` seconds.
CostModel message_costs(int num_ranks, double message) {
  CostModel costs = uniform_costs(num_ranks,
                                  {.forward = {kForward},
                                   .backward_input = {kBackward / 2},
                                   .backward_weight = {kBackward / 2},
                                   .forward_bytes = {1000},
                                   .backward_bytes = {1000}});
  costs.link.bytes_per_second = 1000.0 / message;
  return costs;
}

enum class Compressed { none, all, epilogue, before_epilogue };

// Backward transfers of 400 bytes where compressed. The epilogue of the boundary s -> s - 1 is its
// last min(m, p - s) micro-batches.
double step_seconds(Transfers transfers, int p, int m, double message, Compressed compressed) {
  const Schedule schedule = make_schedule(
      Kind::one_f_one_b, {.num_ranks = p, .num_micro_batches = m, .transfers = transfers});
  CostModel costs = message_costs(p, message);
  for (int stage = 1; stage < p; ++stage) {
    for (int k = 0; k < m; ++k) {
      const bool epilogue = k >= m - (p - stage);
      if (compressed == Compressed::all || (compressed == Compressed::epilogue && epilogue) ||
          (compressed == Compressed::before_epilogue && !epilogue)) {
        costs.transfers[{Site::pipeline_backward, stage, k}] = {400};
      }
    }
  }
  return make_timeline(schedule, costs).step.value;
}

double total(const RankTimes& times) {
  double sum = (times.compute + times.bubble + times.update).value;
  for (const Seconds exposed : times.exposed) {
    sum += exposed.value;
  }
  return sum;
}

}  // namespace

TEST_CASE("with blocking exchanges, all backward compression saves (p - 1)(c - c')") {
  for (const auto& [p, m] : {std::pair{2, 4}, {4, 8}, {4, 16}, {8, 16}}) {
    for (const double message : {0.1, 0.25, 0.5}) {
      const auto step = [&, p = p, m = m](Compressed compressed) {
        return step_seconds(Transfers::blocking, p, m, message, compressed);
      };
      const double plain = step(Compressed::none);
      INFO("p " << p << " m " << m << " message " << message);
      CHECK(plain - step(Compressed::all) == Approx((p - 1) * 0.6 * message));
      CHECK(plain - step(Compressed::epilogue) == Approx((p - 1) * 0.6 * message));
      CHECK(plain - step(Compressed::before_epilogue) == Approx(0.0).margin(1e-9));
    }
  }
}

TEST_CASE("with asynchronous transfers, the epilogue saves as much and steady state adds to it") {
  const auto step = [](Compressed compressed) {
    return step_seconds(Transfers::asynchronous, 4, 16, 0.25, compressed);
  };
  const double plain = step(Compressed::none);
  CHECK(plain - step(Compressed::epilogue) == Approx(3 * 0.6 * 0.25));
  CHECK(plain - step(Compressed::all) > 2.0 * (plain - step(Compressed::epilogue)));
}

TEST_CASE("asynchronous transfers never make a step longer than blocking ones") {
  for (const int m : {1, 3, 8, 16}) {
    CHECK(step_seconds(Transfers::asynchronous, 4, m, 0.3, Compressed::none) <=
          step_seconds(Transfers::blocking, 4, m, 0.3, Compressed::none) + 1e-9);
  }
}

TEST_CASE("compute, bubble, exposed transfers and update add up to the step on every rank") {
  for_every_schedule({.ranks = 4, .micro_batches = 8, .chunks = 2}, [](const Schedule& schedule) {
    CostModel costs = message_costs(schedule.num_stages(), 0.4);
    for (ChunkCosts& chunk : costs.chunks) {
      chunk.data_reduction = {{.at = 0.5, .seconds = {0.7}}, {.at = 1.0, .seconds = {0.7}}};
      chunk.parameter_gather = {{.at = 0.0, .seconds = {0.3}}};
    }
    costs.link.latency = {0.05};
    costs.embedding_sync = {0.4};
    costs.gradient_norm = {0.1};
    costs.optimizer = {0.2};
    const Timeline timeline = make_timeline(schedule, costs);
    for (const RankTimes& times : timeline.ranks) {
      CHECK(total(times) == Approx(timeline.step.value));
      CHECK(times.bubble.value >= -1e-9);
      CHECK(times.update.value == Approx(0.3));
    }
  });
}

TEST_CASE("two ranks and one micro-batch take what a hand counts") {
  const Schedule schedule =
      make_schedule(Kind::one_f_one_b, {.num_ranks = 2, .num_micro_batches = 1});
  CostModel costs = message_costs(2, 0.5);
  costs.link.latency = {0.25};
  const Timeline timeline = make_timeline(schedule, costs);
  // F0 1, message 0.75, F0 1 + B0 2, message 0.75, B0 2.
  CHECK(timeline.step.value == Approx(7.5));
  CHECK(timeline.ranks[0].exposed_at(Site::pipeline_backward).value == Approx(0.75));
  CHECK(timeline.ranks[0].bubble.value == Approx(3.75));
  CHECK(timeline.ranks[1].exposed_at(Site::pipeline_forward).value == Approx(0.75));
  CHECK(timeline.ranks[1].bubble.value == Approx(3.75));
}

TEST_CASE("an eager message starts before its receive is posted, others do not") {
  const Schedule schedule =
      make_schedule(Kind::one_f_one_b,
                    {.num_ranks = 2, .num_micro_batches = 2, .transfers = Transfers::blocking});
  CostModel costs = message_costs(2, 0.5);
  costs.transfers[{Site::pipeline_backward, 1, 0}] = {400};  // 0.2 s
  // Rank 1: F0 2.5, B0 4.5; it then posts the receive of F1's message, made at 2.5, beside the
  // gradient's. F1, B1 and a message of 0.5, and B1 of rank 0.
  CHECK(make_timeline(schedule, costs).step.value == Approx(4.5 + 0.5 + 3.0 + 0.5 + 2.0));
  costs.link.eager_bytes = 1000;
  CHECK(make_timeline(schedule, costs).step.value == Approx(4.5 + 0.5 + 3.0 + 0.5 + 2.0));
  costs.link.eager_bytes = 1001;  // it is there by then
  CHECK(make_timeline(schedule, costs).step.value == Approx(4.5 + 0.2 + 3.0 + 0.5 + 2.0));
}

TEST_CASE("a link serves one message at a time, a half-duplex one both directions together") {
  // Rank 0 sends two messages at once nearly; the second waits for the first.
  const Schedule schedule = make_schedule(Kind::gpipe, {.num_ranks = 2, .num_micro_batches = 2});
  CostModel costs = message_costs(2, 3.0);
  const Timeline full = make_timeline(schedule, costs);
  // F0 1; messages 1..4 and 4..7; F1 until 8; B0 until 10, B1 until 12; gradients 13, 16; B1 18.
  CHECK(full.step.value == Approx(18.0));
  costs.link.duplex = Duplex::half;
  CHECK(make_timeline(schedule, costs).step.value == Approx(18.0));
  const Schedule steady =
      make_schedule(Kind::one_f_one_b, {.num_ranks = 2, .num_micro_batches = 6});
  costs.link.duplex = Duplex::full;
  const double both = make_timeline(steady, costs).step.value;
  costs.link.duplex = Duplex::half;
  CHECK(make_timeline(steady, costs).step.value > both + 1.0);
}

TEST_CASE("links that share an end take turns there") {
  const Schedule steady =
      make_schedule(Kind::one_f_one_b, {.num_ranks = 2, .num_micro_batches = 6});
  CostModel costs = message_costs(2, 3.0);
  const double apart = make_timeline(steady, costs).step.value;
  costs.link.duplex = Duplex::half;
  const double together = make_timeline(steady, costs).step.value;
  costs.link.duplex = Duplex::full;
  const auto step = [&](std::array<int, 2> forward, std::array<int, 2> backward) {
    costs.links = {{{0, 1}, costs.link}, {{1, 0}, costs.link}};
    costs.links[{0, 1}].ends = forward;
    costs.links[{1, 0}].ends = backward;
    return make_timeline(steady, costs).step.value;
  };
  CHECK(step({0, 1}, {2, 3}) == Approx(apart));
  CHECK(step({0, 1}, {2, 1}) == Approx(together));
  CHECK(step({0, 1}, {0, 2}) == Approx(together));
  CHECK(step({0, -1}, {0, -1}) == Approx(together));
}

TEST_CASE("buckets run beside the last backward pass, and the sync after both ends' buckets") {
  const Schedule schedule =
      make_schedule(Kind::one_f_one_b, {.num_ranks = 2, .num_micro_batches = 1});
  CostModel costs = message_costs(2, 1.0);
  costs.chunks[0].data_reduction = {{.at = 0.5, .seconds = {0.25}}, {.at = 1.0, .seconds = {0.5}}};
  costs.chunks[1].data_reduction = {{.at = 1.0, .seconds = {9.0}}};
  costs.embedding_sync = {1.0};
  costs.optimizer = {0.125};
  const Timeline timeline = make_timeline(schedule, costs);
  // Rank 1's backward ends at 5, its bucket at 14; rank 0's ends at 8, its buckets at 7.25 and 8.5.
  CHECK(timeline.step.value == Approx(15.125));
  CHECK(timeline.ranks[1].exposed_at(Site::data_gradient).value == Approx(9.0));
  CHECK(timeline.ranks[0].exposed_at(Site::data_gradient).value == Approx(0.5));
  CHECK(timeline.ranks[0].exposed_at(Site::embedding).value == Approx(1.0));
}

TEST_CASE(
    "a latency holds no link: buckets that travel at once arrive one latency after the last") {
  const Schedule schedule = make_schedule(Kind::one_f_one_b, {.num_micro_batches = 1});
  CostModel costs = message_costs(1, 1.0);
  const Exchanges once{.latency = {5.0}};
  const Bucket bucket{.at = 1.0, .seconds = {0.5}, .exchanges = once};
  costs.chunks[0].data_reduction = {bucket, bucket, bucket, bucket};
  const double passes = 1.0 + 2.0;
  CHECK(make_timeline(schedule, costs).step.value == Approx(passes + 4 * 0.5 + 5.0));
}

TEST_CASE("of a sum in two exchanges the second leaves when the first has arrived") {
  const Schedule schedule = make_schedule(Kind::one_f_one_b, {.num_micro_batches = 1});
  CostModel costs = message_costs(1, 1.0);
  const Exchanges twice{.latency = {5.0}, .plain = 2, .sum = 2};
  const Bucket bucket{.at = 1.0, .seconds = {1.0}, .exchanges = twice};
  costs.chunks[0].data_reduction = {bucket, bucket};
  // Slices leave until 1, arrive until 6; sums leave from 5.5 to 6 and 6 to 6.5, and arrive.
  CHECK(make_timeline(schedule, costs).step.value == Approx(3.0 + 6.5 + 5.0));
  // Gathered frames take one exchange, two sums of a codec four.
  ClassCost& cost = costs.compressed[{Site::data_gradient, 0, Phase::step}];
  cost.rounds = Rounds{.gathers = 1};
  CHECK(make_timeline(schedule, costs).step.value == Approx(3.0 + 2.0 + 5.0));
  cost.rounds = Rounds{.sums = 2};
  CHECK(make_timeline(schedule, costs).step.value == Approx(3.0 + 11.5 + 10.0));
}

TEST_CASE("a codec works on one bucket at a time, beside the link and beside compute") {
  const Schedule schedule = make_schedule(Kind::one_f_one_b, {.num_micro_batches = 1});
  CostModel costs = message_costs(1, 1.0);
  const Bucket bucket{.at = 1.0, .seconds = {2.0}};
  costs.chunks[0].data_reduction = {bucket, bucket};
  costs.compressed[{Site::data_gradient, 0, Phase::step}] = {
      .share = 0.5, .encode = {1.0}, .decode = {0.5}};
  // Encoded at 0.5 and 1; on the link until 1.5 and 2.5; decoded a quarter of a second later.
  CHECK(make_timeline(schedule, costs).step.value == Approx(3.0 + 2.75));
}

TEST_CASE("a parameter gather delays the first forward pass by what does not fit beside it") {
  const Schedule schedule = make_schedule(Kind::one_f_one_b, {.num_micro_batches = 1});
  CostModel costs = message_costs(1, 1.0);
  costs.chunks[0].parameter_gather = {{.at = 0.0, .seconds = {0.5}}, {.at = 0.5, .seconds = {1.5}}};
  // The first piece is there at 0.5, the second at 2, half a second into a forward pass.
  const Timeline timeline = make_timeline(schedule, costs);
  CHECK(timeline.step.value == Approx(1.5 + 3.0));
  CHECK(timeline.ranks[0].exposed_at(Site::parameter_gather).value == Approx(1.5));
}

}  // namespace slackline::schedule::testing
