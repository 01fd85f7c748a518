#include "tools/sweep/sweep_table.h"

#include <sstream>

#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "core/shown_text.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tools/record/metrics.h"
#include "tools/record/metrics_file.h"

namespace slackline {

namespace {

// Fields of records as RFC 4180 defines them.
std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> records = {{""}};
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char character = text[i];
    if (quoted && character == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      records.back().back() += '"';
      ++i;
    } else if (character == '"') {
      quoted = !quoted;
    } else if (!quoted && character == ',') {
      records.back().emplace_back();
    } else if (!quoted && character == '\n') {
      records.push_back({""});
    } else {
      records.back().back() += character;
    }
  }
  records.pop_back();
  return records;
}

constexpr const char* kHostile = "a,\"b\"\r\nc\n,";

SweepRow hostile_row() {
  return {.run = "run-a",
          .settings = {{"data.train.0.path", nlohmann::json(kHostile).dump()},
                       {"compress", R"({"policy":"all"})"}},
          .outcome = RunOutcome{.exit_code = 3, .message = kHostile}};
}

StepRecord step(std::int64_t number, double loss, double seconds) {
  StepRecord record{.step = number, .loss = loss, .tokens = 10, .step_seconds = seconds};
  record.seconds.exposed = seconds / 2;
  record.axes[1] = {.raw_bytes = 8.0, .sent_bytes = 2.0, .exposed_seconds = seconds / 4};
  return record;
}

}  // namespace

TEST_CASE("commas, quotes and line breaks in settings and messages survive CSV and JSON") {
  const std::string shown = shown_lines(kHostile);  // a table is looked at: only \r is escaped here
  SweepRow pending{.run = "run-b", .settings = {{"run.seed", "2"}}};
  const std::vector<SweepRow> rows = {hostile_row(), pending};
  const auto records = parse_csv(results_csv({"data.train.0.path", "compress", "run.seed"}, rows));
  REQUIRE(records.size() == 3);
  for (const std::vector<std::string>& record : records) {
    CHECK(record.size() == records[0].size());
  }
  CHECK(std::vector<std::string>(records[0].begin(), records[0].begin() + 7) ==
        std::vector<std::string>{
            "run", "data.train.0.path", "compress", "run.seed", "status", "exit_code", "message"});
  CHECK(std::vector<std::string>(records[1].begin(), records[1].begin() + 9) ==
        std::vector<std::string>{
            "run-a", shown, R"({"policy":"all"})", "", "failed", "3", shown, "0", ""});
  CHECK(std::vector<std::string>(records[2].begin(), records[2].begin() + 9) ==
        std::vector<std::string>{"run-b", "", "", "2", "pending", "", "", "", ""});

  const auto json = nlohmann::json::parse(results_json(rows));
  CHECK(json[0]["settings"]["data.train.0.path"] == kHostile);
  CHECK(json[0]["settings"]["compress"]["policy"] == "all");
  CHECK(json[0]["message"] == kHostile);
  CHECK(json[1]["status"] == "pending");
  CHECK(json[1]["exit_code"].is_null());
}

TEST_CASE("a message that is no UTF-8 still makes a table") {
  SweepRow row = hostile_row();
  row.outcome->message = "\xff\xfe";
  CHECK(nlohmann::json::parse(results_json({row}))[0]["exit_code"] == 3);
}

TEST_CASE("a run is summed up by its last losses and the second half of its steps") {
  const TemporaryDirectory directory;
  CHECK(summarize_run(directory.path()).steps == 0);
  CHECK(newest_step(directory.path()) == 0);
  std::string text;
  for (const StepRecord& record : {step(1, 5.0, 9.0), step(2, 4.0, 9.0)}) {
    text += step_line(record) + "\n";
  }
  text += evaluation_line(2, 4.5, 1.5) + "\n";
  for (const StepRecord& record : {step(3, 3.5, 1.0), step(4, 3.0, 3.0)}) {
    text += step_line(record) + "\n";
  }
  write_file_atomically(directory.file("metrics.jsonl"), text + "{\"step\": 5, \"lo");

  const RunSummary summary = summarize_run(directory.path());
  CHECK(summary.steps == 4);
  CHECK(summary.loss == 3.0);
  CHECK(summary.eval_loss == 4.5);
  CHECK(summary.step_seconds == 2.0);
  CHECK(summary.tokens_per_second == 5.0);
  CHECK(summary.exposed_seconds == 1.0);
  CHECK(summary.axes[1].raw_bytes == 8.0);
  CHECK(summary.axes[1].sent_bytes == 2.0);
  CHECK(summary.axes[1].exposed_seconds == 0.5);
  CHECK(newest_step(directory.path()) == 5);  // a line that is being written counts as a step

  SweepRow row{.run = "a", .outcome = RunOutcome{}, .summary = summary};
  const auto json = nlohmann::json::parse(results_json({row}))[0];
  CHECK(json["status"] == "done");
  CHECK(json["loss"] == 3.0);
  CHECK(json["axes"]["pipeline"]["sent_bytes"] == 2);
}

TEST_CASE("the step that a loss which is not finite stopped counts as one, without its numbers") {
  const TemporaryDirectory directory;
  StepRecord last{.step = 2, .loss = std::numeric_limits<double>::quiet_NaN(), .tokens = 10};
  write_file_atomically(directory.file("metrics.jsonl"),
                        step_line(step(1, 5.0, 1.0)) + "\n" + step_line(last) + "\n");
  const RunSummary summary = summarize_run(directory.path());
  CHECK(summary.steps == 2);
  CHECK_FALSE(summary.loss.has_value());
  CHECK(summary.step_seconds == 1.0);
  const report::Metrics metrics = report::read_metrics(directory.file("metrics.jsonl"));
  CHECK(metrics.steps.size() == 2);
  CHECK(metrics.timed().size() == 1);
}

TEST_CASE("the last error of a run is found among what it printed") {
  CHECK(last_message("").empty());
  CHECK(last_message("sh: no such thing\n\n") == "sh: no such thing");
  CHECK(last_message("10:00:00 error first\n10:00:01 info a\n10:00:02 error a\nb: c\nhint: d\n") ==
        "a\nb: c\nhint: d");
  CHECK(last_message("10:00:00 error a\n10:00:01 info stopped\n") == "a");
  CHECK(last_message("10:00:00 error a\n-------------\nmpirun noticed\n") == "a");
}

}  // namespace slackline
