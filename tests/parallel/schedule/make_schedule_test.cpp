#include "parallel/schedule/make_schedule.h"

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "parallel/schedule/printer.h"
#include "tests/parallel/schedule/golden_text.h"
#include "tests/support/catch.h"

namespace slackline::schedule::testing {

namespace {

struct GoldenCase {
  const char* file = nullptr;
  Kind kind{};
  ScheduleOptions options;
};

const GoldenCase kGoldenCases[] = {
    {"gpipe_4x8.txt", Kind::gpipe, {.num_ranks = 4, .num_micro_batches = 8}},
    {"1f1b_4x2.txt", Kind::one_f_one_b, {.num_ranks = 4, .num_micro_batches = 2}},
    {"1f1b_4x8_blocking.txt",
     Kind::one_f_one_b,
     {.num_ranks = 4, .num_micro_batches = 8, .transfers = Transfers::blocking}},
    {"interleaved_2x2x4.txt",
     Kind::interleaved,
     {.num_ranks = 2, .num_chunks = 2, .num_micro_batches = 4}},
    {"interleaved_2x2x4_blocking.txt",
     Kind::interleaved,
     {.num_ranks = 2, .num_chunks = 2, .num_micro_batches = 4, .transfers = Transfers::blocking}},
    {"zb_h1_4x8.txt", Kind::zb_h1, {.num_ranks = 4, .num_micro_batches = 8}},
    {"zb_h1_4x2.txt", Kind::zb_h1, {.num_ranks = 4, .num_micro_batches = 2}},
};

}  // namespace

TEST_CASE("small schedules equal their golden text") {
  for (const GoldenCase& golden : kGoldenCases) {
    const Schedule schedule = make_schedule(golden.kind, golden.options);
    INFO(golden.file);
    CHECK(schedule_text(schedule, ShownOps::compute) + "\n" +
              schedule_text(schedule, ShownOps::all) ==
          golden_text(golden.file));
  }
}

TEST_CASE("options that do not fit the kind are refused in a sentence") {
  CHECK_THROWS_WITH(
      make_schedule(Kind::interleaved, {.num_ranks = 4, .num_chunks = 2, .num_micro_batches = 6}),
      "the interleaved schedule needs a multiple of the pipeline degree as its number of "
      "micro-batches: 6 micro-batches on 4 ranks");
  CHECK_THROWS_WITH(make_schedule(Kind::one_f_one_b, {.num_chunks = 2}),
                    "only the interleaved schedule has several chunks on a rank: 2");
  CHECK_THROWS_WITH(make_schedule(Kind::gpipe, {.num_micro_batches = 0}),
                    "a schedule needs at least one micro-batch: 0");
}

TEST_CASE("one rank transfers nothing, whatever the schedule") {
  for (const Kind kind : {Kind::gpipe, Kind::one_f_one_b, Kind::interleaved, Kind::zb_h1}) {
    for (const Transfers transfers : {Transfers::asynchronous, Transfers::blocking}) {
      const int chunks = kind == Kind::interleaved ? 3 : 1;
      const Schedule schedule = make_schedule(
          kind, {.num_chunks = chunks, .num_micro_batches = 3, .transfers = transfers});
      for (const Op& op : schedule.ranks.at(0)) {
        CHECK(is_compute(op.kind));
      }
    }
  }
}

}  // namespace slackline::schedule::testing
