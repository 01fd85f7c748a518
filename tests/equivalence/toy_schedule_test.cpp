// A schedule is a list of ops: one that no generator knows is proven, timed and run like those that
// make_schedule() makes.

#include <string>
#include <vector>

#include "parallel/predict/timeline/timeline.h"
#include "parallel/schedule/make_schedule.h"
#include "parallel/schedule/transfer_passes.h"
#include "tests/equivalence/bounds.h"
#include "tests/equivalence/distance.h"
#include "tests/equivalence/layouts.h"
#include "tests/parallel/schedule/validator.h"
#include "tests/parallel/uniform_costs.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

using schedule::OpKind;
using schedule::Schedule;

constexpr int kRound = 2;  // micro-batches

// GPipe in rounds, each of which runs its forward passes from its last micro-batch to its first.
schedule::ComputeOrder rounds_order(const schedule::ScheduleOptions& options, int rank) {
  schedule::ComputeOrder order;
  for (int first = 0; first < options.num_micro_batches; first += kRound) {
    for (int k = kRound; k-- > 0;) {
      order.push_back({OpKind::forward, rank, first + k});
    }
    for (int k = 0; k < kRound; ++k) {
      order.push_back({OpKind::backward, rank, first + k});
    }
  }
  return order;
}

// REQUIRES: micro-batches make whole rounds.
Schedule rounds(const schedule::ScheduleOptions& options) {
  Schedule made{.kind = schedule::Kind::gpipe,  // whose bound is all micro-batches
                .num_ranks = options.num_ranks,
                .num_micro_batches = options.num_micro_batches};
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    made.ranks.push_back(rounds_order(options, rank));
  }
  options.transfers == schedule::Transfers::blocking ? pair_exchanges(made)
                                                     : post_receives_early(made);
  return made;
}

RankPlan plan_in_rounds(const MeshJob& job, const MeshPlace& place) {
  RankPlan plan = make_rank_plan(job, place);
  plan.executor.schedules = std::make_shared<const StepSchedules>(
      StepSchedules{.training = rounds({.num_ranks = job.parallel.pipeline,
                                        .num_micro_batches = job.num_micro_batches,
                                        .transfers = plan.executor.schedule().transfers}),
                    .evaluation = plan.executor.evaluation()});
  return plan;
}

}  // namespace

TEST_CASE("the validator proves a schedule that no generator makes") {
  for (int p = 1; p <= 4; ++p) {
    for (int m = kRound; m <= 8; m += kRound) {
      for (const auto transfers :
           {schedule::Transfers::asynchronous, schedule::Transfers::blocking}) {
        INFO("p " << p << " m " << m << " transfers " << static_cast<int>(transfers));
        const Schedule made =
            rounds({.num_ranks = p, .num_micro_batches = m, .transfers = transfers});
        CHECK(violations(made).empty());
      }
    }
  }
}

TEST_CASE("the timeline of a schedule that no generator makes has the bubble of each round") {
  for (int p = 1; p <= 4; ++p) {
    for (int m = kRound; m <= 8; m += kRound) {
      INFO("p " << p << " m " << m);
      const schedule::Timeline timeline = make_timeline(
          rounds({.num_ranks = p, .num_micro_batches = m}),
          schedule::uniform_costs(
              p, {.forward = {1.0}, .backward_input = {1.25}, .backward_weight = {0.75}}));
      const int passes = m + m / kRound * (p - 1);
      CHECK(timeline.step.value == Approx(3.0 * passes));
    }
  }
}

TEST_CASE("a run by a schedule that no generator makes gives the numbers of one rank") {
  for (const auto transfers : {schedule::Transfers::asynchronous, schedule::Transfers::blocking}) {
    for (const Layout& layout : plain_layouts()) {
      if (layout.run.parallel.pipeline == 1) {
        continue;
      }
      INFO(layout.name << " transfers " << static_cast<int>(transfers));
      MeshRun run = layout.run;
      run.model.dropout = 0.1F;
      run.parallel.transfers = transfers;
      const MeshRunResult one_rank = run_mesh(on_one_rank(run));
      const MeshRunResult no_pipeline = run_mesh(same_bits(run));
      run.makers.rank_plan = plan_in_rounds;
      const MeshRunResult result = run_mesh(run);
      CHECK(beyond(distance(result, one_rank), kFloatRounding) == "");
      CHECK(bit_differences(result, no_pipeline) == "");
    }
  }
}

}  // namespace slackline::testing
