#include "tests/parallel/schedule/formulas.h"

#include "parallel/predict/timeline/timeline.h"
#include "tests/parallel/schedule/every_schedule.h"
#include "tests/parallel/schedule/validator.h"
#include "tests/parallel/uniform_costs.h"
#include "tests/support/catch.h"

namespace slackline::schedule::testing {

namespace {

constexpr RankCosts kCosts{.forward = {1.0}, .backward_input = {1.25}, .backward_weight = {0.75}};

CostModel costs_of(const Schedule& schedule) {
  const double share = 1.0 / schedule.num_chunks;
  return uniform_costs(schedule.num_stages(),
                       {.forward = share * kCosts.forward,
                        .backward_input = share * kCosts.backward_input,
                        .backward_weight = share * kCosts.backward_weight});
}

}  // namespace

TEST_CASE("each rank's bubble equals the closed formula when transfers take no time") {
  for_every_schedule({}, [](const Schedule& schedule) {
    if (schedule.transfers == Transfers::blocking ||
        (schedule.kind == Kind::zb_h1 && schedule.num_micro_batches < schedule.num_ranks)) {
      return;
    }
    INFO("kind " << static_cast<int>(schedule.kind) << " p " << schedule.num_ranks << " v "
                 << schedule.num_chunks << " m " << schedule.num_micro_batches);
    const Timeline timeline = make_timeline(schedule, costs_of(schedule));
    const Seconds bubble =
        bubble_seconds(schedule.kind, schedule.num_ranks, schedule.num_chunks, kCosts);
    for (const RankTimes& times : timeline.ranks) {
      CHECK(times.bubble.value == Approx(bubble.value).margin(1e-9));
    }
    CHECK(bubble_share(timeline) == Approx(bubble_share(schedule.kind,
                                                        schedule.num_ranks,
                                                        schedule.num_chunks,
                                                        schedule.num_micro_batches,
                                                        kCosts))
                                        .margin(1e-9));
  });
}

TEST_CASE("the bubble share of 1f1b and gpipe is (p - 1) / (m + p - 1)") {
  for (const Kind kind : {Kind::one_f_one_b, Kind::gpipe}) {
    CHECK(bubble_share(kind, 4, 1, 8, kCosts) == Approx(3.0 / 11.0));
  }
  CHECK(bubble_share(Kind::zb_h1, 4, 1, 8, {{1.0}, {1.0}, {1.0}}) == Approx(3.0 / 27.0));
}

TEST_CASE("each rank holds as many micro-batches at once as its kind's bound") {
  for_every_schedule({.ranks = 5, .micro_batches = 10, .chunks = 3}, [](const Schedule& schedule) {
    for (int rank = 0; rank < schedule.num_ranks; ++rank) {
      CHECK(most_in_flight(schedule, rank) == in_flight_bound(schedule, rank));
    }
  });
}

}  // namespace slackline::schedule::testing
