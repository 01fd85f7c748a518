#include "parallel/predict/timeline/chrome_trace.h"

#include <array>
#include <map>

#include "parallel/schedule/make_schedule.h"
#include "tests/parallel/uniform_costs.h"
#include "tests/support/catch.h"

namespace slackline::schedule::testing {

TEST_CASE("a trace has a process per rank and a thread per track") {
  const std::string trace = chrome_trace({{0, "compute", "F0", {0.0}, {0.001}},
                                          {1, "compute", "F0", {0.002}, {0.001}},
                                          {1, "waiting", "w", {0.0}, {0.0000005}}});
  CHECK(trace ==
        "{\"traceEvents\":[\n"
        R"({"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"rank 0"}},)"
        "\n"
        R"({"ph":"M","name":"thread_name","pid":0,"tid":0,"args":{"name":"compute"}},)"
        "\n"
        R"({"ph":"X","name":"F0","pid":0,"tid":0,"ts":0.000,"dur":1000.000},)"
        "\n"
        R"({"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"rank 1"}},)"
        "\n"
        R"({"ph":"M","name":"thread_name","pid":1,"tid":0,"args":{"name":"compute"}},)"
        "\n"
        R"({"ph":"X","name":"F0","pid":1,"tid":0,"ts":2000.000,"dur":1000.000},)"
        "\n"
        R"({"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"waiting"}},)"
        "\n"
        R"({"ph":"X","name":"w","pid":1,"tid":1,"ts":0.000,"dur":0.500})"
        "\n]}\n");
  CHECK(chrome_trace({}) == "{\"traceEvents\":[\n\n]}\n");
}

TEST_CASE("a timeline's bars fill each rank's time with compute and waiting") {
  const Schedule schedule =
      make_schedule(Kind::one_f_one_b, {.num_ranks = 2, .num_micro_batches = 3});
  CostModel costs = uniform_costs(
      2,
      {.forward = {1.0}, .backward_input = {2.0}, .forward_bytes = {10}, .backward_bytes = {10}});
  costs.link.bytes_per_second = 20.0;
  const Timeline timeline = make_timeline(schedule, costs);
  std::array<std::map<double, double>, 2> own;  // of each rank: ends by beginnings
  double sent = 0.0;
  for (const TraceBar& bar : trace_bars(schedule, timeline)) {
    if (bar.track == "compute" || bar.track == "waiting") {
      own.at(static_cast<std::size_t>(bar.rank))[bar.start.value] =
          bar.start.value + bar.duration.value;
    } else {
      sent += bar.duration.value;
    }
  }
  for (const std::map<double, double>& bars : own) {
    double end = 0.0;
    for (const auto& [begins, ends] : bars) {
      CHECK(begins == Approx(end).margin(1e-12));
      end = ends;
    }
    CHECK(end == Approx(timeline.step.value));
  }
  CHECK(sent == Approx(6 * 0.5));
}

}  // namespace slackline::schedule::testing
