#include "parallel/predict/timeline/timeline_printer.h"

#include <cmath>
#include <iomanip>
#include <sstream>
#include <vector>

#include "parallel/predict/timeline/slack.h"
#include "parallel/schedule/make_schedule.h"
#include "parallel/schedule/printer.h"
#include "tests/parallel/schedule/golden_text.h"
#include "tests/parallel/uniform_costs.h"
#include "tests/support/catch.h"

namespace slackline::schedule::testing {

namespace {

// Rounded, so that the rounding noise of a zero does not print a sign.
std::string milliseconds(Seconds seconds) {
  const double rounded = std::round(1e6 * seconds.value) / 1e3;
  std::ostringstream out;
  out << std::fixed << std::setprecision(3) << std::setw(11) << (rounded == 0.0 ? 0.0 : rounded);
  return out.str();
}

// One row per class: number of transfers, bytes, mean time, least slack.
std::string slack_text(const std::vector<ClassSlack>& rows) {
  std::ostringstream out;
  out << "site              stage phase    count         bytes    ms each   slack ms\n";
  for (const ClassSlack& row : rows) {
    out << std::left << std::setw(18) << site_name(row.members.site) << std::setw(6)
        << row.members.stage << std::setw(9) << phase_name(row.members.phase) << std::right
        << std::setw(5) << row.count << std::setw(14) << row.bytes.value
        << milliseconds((1.0 / row.count) * row.seconds) << milliseconds(row.slack) << "\n";
  }
  return out.str();
}

// The worked example of docs/schedule.md: 4 ranks and 8 micro-batches; forward 1 ms and backward
// 2 ms, a quarter more on the last rank; messages of 0.25 ms; the update of a data-parallel step.
std::string worked_example() {
  const Schedule schedule =
      make_schedule(Kind::one_f_one_b, {.num_ranks = 4, .num_micro_batches = 8});
  CostModel costs =
      uniform_costs(4,
                    {.forward = {1e-3},
                     .backward_input = {1e-3},
                     .backward_weight = {1e-3},
                     .forward_bytes = {250000},
                     .backward_bytes = {250000},
                     .data_reduction = {{.at = 0.5, .seconds = {0.8e-3}},
                                        {.at = 1.0, .seconds = {0.8e-3}, .tail = true}}});
  costs.chunks[3].forward = {1.25e-3};
  costs.chunks[3].backward_input = {1.5e-3};
  costs.link.bytes_per_second = 1e9;
  costs.embedding_sync = {0.5e-3};
  costs.optimizer = {0.5e-3};
  const Timeline timeline = make_timeline(schedule, costs);
  constexpr int kWidth = 90;
  return schedule_text(schedule, ShownOps::compute) + "\n" +
         timeline_text(schedule, timeline, kWidth) + "\n" + slack_text(class_slacks(timeline));
}

}  // namespace

TEST_CASE("the worked example of docs/schedule.md is what the printers write") {
  const std::string text = worked_example();
  CHECK(text == golden_text("1f1b_4x8.txt"));
  CHECK(source_text("docs/schedule.md").find("```\n" + text + "```\n") != std::string::npos);
}

}  // namespace slackline::schedule::testing
