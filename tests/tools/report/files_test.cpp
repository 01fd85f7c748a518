// What a report reads: metrics that a crash may have cut, traces, results of sweeps.

#include <cmath>
#include <string>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_io.h"
#include "parallel/mesh/reported_axes.h"
#include "parallel/predict/timeline/chrome_trace.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tools/record/metrics.h"
#include "tools/record/metrics_file.h"
#include "tools/report/sections.h"
#include "tools/report/sweep_record.h"

namespace slackline::report {

using Catch::Contains;

namespace {

StepRecord step_record(std::int64_t step) {
  return {.step = step,
          .loss = 4.5 - static_cast<double>(step),
          .grad_norm = 2.0,
          .lr = 1e-3,
          .tokens = 64,
          .step_seconds = 0.5,
          .seconds = {.compute = 0.25, .bubble = 0.125, .exposed = 0.0625, .other = 0.0625},
          .axes = {{{.raw_bytes = 10, .sent_bytes = 8, .exposed_seconds = 0.0625},
                    {.raw_bytes = 11, .sent_bytes = 9, .exposed_seconds = 0.03125},
                    {.raw_bytes = 12, .sent_bytes = 7, .exposed_seconds = 0.015625},
                    {.raw_bytes = 13, .sent_bytes = 6, .exposed_seconds = 0.0078125}}}};
}

std::string two_steps() {
  return step_line(step_record(1)) + "\n" + evaluation_line(1, 3.25, 1.5) + "\n" +
         step_line(step_record(2)) + "\n";
}

Metrics metrics_of(const std::string& text) {
  const TemporaryDirectory directory;
  write_file_atomically(directory.file("metrics.jsonl"), text);
  return read_metrics(directory.file("metrics.jsonl"));
}

SweepRecord sweep_of(const TemporaryDirectory& directory, const std::string& results) {
  write_file_atomically(directory.file("results.json"), results);
  return read_sweep_results(directory.path());
}

}  // namespace

TEST_CASE("metrics are read back as they were written") {
  const Metrics metrics = metrics_of(two_steps());
  CHECK_FALSE(metrics.cut);
  REQUIRE(metrics.steps.size() == 2);
  // A line holds every field that is written of a step.
  CHECK(step_line(metrics.steps[0]) == step_line(step_record(1)));
  CHECK(step_line(metrics.steps[1]) == step_line(step_record(2)));
  CHECK_THAT(step_line(step_record(2)), Contains("0.0078125") && Contains("\"sent_bytes\": 6,"));
  StepRecord grouped = step_record(3);
  grouped.axes[2].across_bytes = 5;
  const std::string line = step_line(grouped);
  CHECK_THAT(line, Contains(R"("sent_bytes": 7, "across_bytes": 5, "exposed_seconds")"));
  CHECK(step_line(metrics_of(line + "\n").steps.at(0)) == line);
  StepRecord skipped = step_record(3);
  skipped.skipped = true;
  CHECK(metrics_of(step_line(skipped) + "\n").steps.at(0).skipped);
  REQUIRE(metrics.evaluations.size() == 1);
  CHECK(metrics.evaluations[0].step == 1);
  CHECK(metrics.evaluations[0].loss == 3.25);
}

TEST_CASE("lines say when they were written, and which rank computed longest") {
  StepRecord record = step_record(3);
  record.time = 1764250000.125;
  record.slowest = {.rank = 5, .host = "node\"2", .compute_seconds = 0.75};
  const std::string line = step_line(record);
  CHECK_THAT(line,
             Contains(R"("slowest": {"rank": 5, "host": "node\"2", "compute_seconds": 0.75})"));
  CHECK_THAT(line, Contains(R"("time": 1764250000.125)"));
  CHECK(step_line(metrics_of(line + "\n").steps.at(0)) == line);
  CHECK(evaluation_line(3, 2.5, 1764250000.5) ==
        R"({"step": 3, "eval_loss": 2.5, "time": 1764250000.500})");
}

TEST_CASE("ends of outer rounds are read back as they were written") {
  StepRecord end = step_record(6);
  end.has_workers = true;
  end.round = {.worker_losses = {4.25, 4.5, 4.0},
               .penalty = 1.5,
               .distance = 0.0625,
               .period = 7,
               .left_out = true};
  const std::string first = step_line(end);
  CHECK_THAT(first, Contains(R"("period": 7, "left_out": true})"));
  end.round->clipped = 0.25;
  end.round->travel = {
      .sent_step = 3, .round_seconds = 1.75, .period_seconds = 1.5, .wait_seconds = 0.25};
  const std::string second = step_line(end);
  CHECK_THAT(
      second,
      Contains(R"("left_out": true, "clipped": 0.25, "sent_step": 3, "round_seconds": 1.75, )"
               R"("period_seconds": 1.5, "wait_seconds": 0.25})"));
  const Metrics metrics = metrics_of(first + "\n" + second + "\n" + two_steps());
  REQUIRE(metrics.steps.size() == 4);
  CHECK(step_line(metrics.steps[0]) == first);
  CHECK_FALSE(metrics.steps[0].round->travel);
  CHECK(step_line(metrics.steps[1]) == second);
  CHECK_FALSE(metrics.steps[2].round);
  end.round->worker_losses = {4.25, std::nan(""), 4.0};
  end.round->distance = std::nan("");
  const std::string unknown = step_line(end);
  CHECK_THAT(unknown, Contains("[4.25, null, 4]"));
  CHECK_THAT(unknown, Contains(R"("distance": null, "period": 7)"));
  CHECK(step_line(metrics_of(unknown + "\n").steps.at(0)) == unknown);
}

TEST_CASE("a last line that is cut anywhere is told, and the rest is read") {
  const std::string whole = two_steps();
  const std::size_t last_line = whole.rfind('\n', whole.size() - 2) + 1;
  const auto require_cut = [&](std::size_t size) {
    const Metrics metrics = metrics_of(whole.substr(0, size));
    REQUIRE(metrics.cut);
    REQUIRE(metrics.steps.size() == 1);
  };
  for (std::size_t size = last_line + 1; size < whole.size(); size += 17) {
    require_cut(size);
  }
  require_cut(whole.size() - 1);  // all of it but the end of the line
  const Metrics ended = metrics_of(two_steps() + "{\"step\": 3, \"lo\n");
  REQUIRE(ended.cut);
  CHECK(*ended.cut == "line 4 is no JSON");
  CHECK(ended.steps.size() == 2);
  CHECK(metrics_of("").steps.empty());
}

TEST_CASE("a line that is not the last, or is JSON and not metrics, is refused with its number") {
  CHECK_THROWS_AS(metrics_of("{\"step\": 1, \"lo\n" + two_steps()), FileError);
  CHECK_THROWS_WITH(metrics_of("{\"step\": 1, \"lo\n" + two_steps()),
                    Contains("metrics.jsonl: line 1"));
  CHECK_THROWS_WITH(metrics_of(two_steps() + "{\"step\": 3}\n"),
                    Contains("line 4") && Contains("neither loss nor eval_loss"));
  CHECK_THROWS_WITH(metrics_of("{\"step\": 1, \"loss\": \"low\"}\n" + two_steps()),
                    Contains("line 1") && Contains("loss"));
}

TEST_CASE("a loss that was not finite is NaN, and absent accounts are nothing") {
  const Metrics metrics = metrics_of("{\"step\": 1, \"loss\": null, \"grad_norm\": null}\n");
  REQUIRE(metrics.steps.size() == 1);
  CHECK(std::isnan(metrics.steps[0].loss));
  CHECK(std::isnan(metrics.steps[0].step_seconds));
  CHECK(metrics.steps[0].axes[2].sent_bytes == 0.0);
}

TEST_CASE("a trace is read back as it was written, names and all") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("trace.json");
  write_file_atomically(path,
                        schedule::chrome_trace({{2, "compute", "<forward> \"s0\"", {0.5}, {0.25}},
                                                {2, "data", "sum", {0.75}, {0.125}},
                                                {3, "data", "sum", {0.75}, {0.125}}}));
  const std::vector<schedule::TraceBar> bars = schedule::read_trace(path);
  REQUIRE(bars.size() == 3);
  CHECK(bars[0].rank == 2);
  CHECK(bars[0].track == "compute");
  CHECK(bars[0].name == "<forward> \"s0\"");
  CHECK(bars[0].start.value == Approx(0.5));
  CHECK(bars[0].duration.value == Approx(0.25));
  CHECK(bars[2].rank == 3);
  CHECK(bars[2].track == "data");
  write_file_atomically(path, "{\"traceEvents\": [{\"ph\": 1}]}");
  CHECK_THROWS_AS(schedule::read_trace(path), FileError);
  CHECK_THROWS_WITH(schedule::read_trace(path), Catch::StartsWith(path));
}

TEST_CASE("results of a sweep are read with any columns") {
  const TemporaryDirectory directory;
  const std::string rows =
      R"([{"run": "a", "settings": {"optimizer.lr": 0.001, "compress": {"policy": "all"}, "x": "y"},
           "status": "done", "message": "", "loss": 2.5, "eval_loss": null, "host": "<b>",
           "axes": {"data": {"sent_bytes": 12, "raw_bytes": 48}}},
          {"run": "b", "settings": {"k": null}, "status": "failed", "exit_code": 5,
           "message": "bad", "axes": null}])";
  const SweepRecord sweep = sweep_of(directory, rows);
  REQUIRE(sweep.runs.size() == 2);
  const SweepRun& run = sweep.runs[0];
  CHECK(run.directory == "a");
  CHECK(run.settings ==
        std::vector<std::pair<std::string, std::string>>{
            {"optimizer.lr", "0.001"}, {"compress", "{\"policy\":\"all\"}"}, {"x", "y"}});
  CHECK(run.columns ==
        std::vector<std::pair<std::string, std::string>>{{"loss", "2.5"},
                                                         {"host", "<b>"},
                                                         {"axes.data.sent_bytes", "12"},
                                                         {"axes.data.raw_bytes", "48"}});
  CHECK(run.numbers.at("axes.data.sent_bytes") == 12);
  CHECK(run.numbers.count("eval_loss") == 0);
  const SweepRun& failed = sweep.runs[1];
  CHECK(failed.settings == std::vector<std::pair<std::string, std::string>>{{"k", "null"}});
  CHECK(failed.message == "bad");
  CHECK(failed.numbers.at("exit_code") == 5);
  CHECK(failed.columns.size() == 1);
}

TEST_CASE("results that are none are refused, and name the file") {
  const TemporaryDirectory directory;
  for (const char* wrong :
       {"", "null", "[1]", "{}", "{\"runs\": 3}", "[{\"status\": \"done\"}]", "[{"}) {
    INFO(wrong);
    CHECK_THROWS_AS(sweep_of(directory, wrong), FileError);
    CHECK_THROWS_WITH(sweep_of(directory, wrong),
                      Catch::StartsWith(directory.file("results.json")));
  }
}

TEST_CASE("runs of a sweep are looked for below it only") {
  const TemporaryDirectory outside;
  const TemporaryDirectory directory;
  write_file_atomically(outside.file("metrics.jsonl"), two_steps());
  make_directories(directory.file("inside"));
  write_file_atomically(directory.file("inside/metrics.jsonl"), two_steps());
  const std::string up = outside.path().substr(outside.path().rfind('/') + 1);
  const SweepRecord sweep = sweep_of(
      directory,
      fmt::format(
          R"([{{"run": "inside"}}, {{"run": "{}"}}, {{"run": "../{}"}}])", outside.path(), up));
  REQUIRE(sweep.runs.size() == 3);
  CHECK(sweep.runs[0].metrics.steps.size() == 2);
  CHECK(sweep.runs[1].metrics.steps.empty());
  CHECK(sweep.runs[2].metrics.steps.empty());
}

TEST_CASE("of a large sweep the steps of as many runs are kept as are drawn") {
  const TemporaryDirectory directory;
  std::string rows;
  for (int i = 0; i < 10; ++i) {
    make_directories(directory.file(std::to_string(i)));
    write_file_atomically(directory.file(std::to_string(i) + "/metrics.jsonl"), two_steps());
    rows += fmt::format("{}{{\"run\": \"{}\"}}", i == 0 ? "" : ", ", i);
  }
  const SweepRecord sweep = sweep_of(directory, fmt::format("[{}]", rows));
  CHECK(sweep.runs_with_steps == 10);
  CHECK(sweep.runs[7].metrics.steps.size() == 2);
  CHECK(sweep.runs[8].metrics.steps.empty());
}

TEST_CASE("bytes between groups are a mean of the steps that had groups") {
  RunRecord run;
  run.plan.compression.emplace_back();  // no classes
  for (const std::int64_t step : {1, 2, 3}) {
    StepRecord record = step_record(step);
    if (step > 1) {  // resumed in groups
      for (AxisTraffic& axis : record.axes) {
        axis.across_bytes = 0.0;
      }
      record.axes[kDataAxis].across_bytes = step == 2 ? 2.0 : 4.0;
    }
    run.metrics.steps.push_back(record);
  }
  const std::string html = bytes_section(run).str();
  CHECK_THAT(html, Contains("between groups a step") && Contains(">3 B<"));
  run.metrics.steps.resize(1);
  CHECK_THAT(bytes_section(run).str(), !Contains("between groups a step"));
}

TEST_CASE("a sweep without a finished run has no chart of speed, and says so") {
  const TemporaryDirectory directory;
  const SweepRecord sweep = sweep_of(
      directory,
      R"([{"run": "a", "status": "failed", "settings": {}, "tokens_per_second": 5, "loss": 2.5}])");
  const std::string html = sweep_section(sweep).str();
  CHECK_THAT(html,
             Contains("Speed against training loss") && Contains("to the right: no values") &&
                 Contains("1 of 1 runs have no such point") && !Contains("<circle"));
}

}  // namespace slackline::report
