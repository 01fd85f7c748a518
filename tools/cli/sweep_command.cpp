#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_io.h"
#include "core/joined_text.h"
#include "core/locked_file.h"
#include "core/log.h"
#include "core/shown_text.h"
#include "core/terminal.h"
#include "tools/cli/commands.h"
#include "tools/record/metrics.h"
#include "tools/record/progress_line.h"
#include "tools/record/run_summary.h"
#include "tools/run/stop_signal.h"
#include "tools/sweep/sweep_file.h"
#include "tools/sweep/sweep_run.h"
#include "tools/sweep/sweep_table.h"

namespace slackline {

namespace {

using Clock = std::chrono::steady_clock;

// Counts how far a sweep is, in steps over all its runs.
class SweepPace {
 public:
  // So many steps are to be done.
  explicit SweepPace(std::int64_t steps) : left_(steps) {}

  // A run that was to do `planned` steps has ended after `done` of them.
  void end_run(std::int64_t planned, std::int64_t done) {
    left_ -= planned;
    done_ += done;
  }

  // "3m12s left", at the pace since the sweep was started; says that it is unknown until a step is
  // done.
  [[nodiscard]] std::string time_left(std::int64_t steps_under_way = 0) const {
    const std::int64_t done = done_ + steps_under_way;
    const std::int64_t left = left_ - steps_under_way;
    if (left > 0 && done <= 0) {
      return "time left unknown";
    }
    const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
    const double pace = left > 0 ? elapsed / static_cast<double>(done) : 0.0;
    return fmt::format("{} left", duration_text(pace * static_cast<double>(left)));
  }

 private:
  std::int64_t left_;
  std::int64_t done_ = 0;
  Clock::time_point start_ = Clock::now();
};

// Two sweeps in one directory would run the same points twice. Tables that no sweep has made stay
// as they are: each leaves its lock's file.
LockedFile claim_directory(const std::string& dir) {
  make_directories(dir);
  const std::string path = fmt::format("{}/sweep.lock", dir);
  for (const char* name : {"results.csv", "results.json"}) {
    const std::string table = fmt::format("{}/{}", dir, name);
    if (!path_exists(path) && path_exists(table)) {
      throw FileError(with_hint(fmt::format("{}: was not written by a sweep", table),
                                "choose another \"dir\", or move this file away"));
    }
  }
  std::optional<LockedFile> lock = LockedFile::open(path);
  if (!lock) {
    throw FileError(fmt::format(
        "{}: another sweep is at work here; wait for its end, or choose another \"dir\"", path));
  }
  return std::move(*lock);
}

// Returns how a run ended, or that its record does not agree: settings are judged by numbers of the
// whole run.
RunOutcome judge(const SweepPoint& point, const RunSummary& summary, const RunOutcome& ended) {
  const RunConfig& run = point.config.run;
  std::optional<std::string> wrong = summary.gap;
  const bool goes_on = !point.config.checkpoint.resume_from.empty();
  if (!wrong && !goes_on && summary.first_step > 1) {
    wrong = fmt::format("begins with step {}", summary.first_step);
  }
  // A run that was begun from another one's last step has none of its own.
  const bool no_steps = summary.steps == 0 && goes_on;
  if (!wrong && ended.exit_code == static_cast<int>(ExitCode::done) && !no_steps &&
      summary.steps != run.steps) {
    wrong = fmt::format("ends with step {} of {}", summary.steps, run.steps);
  }
  if (!wrong || !ended.stands()) {
    return ended;
  }
  return {.exit_code = static_cast<int>(ExitCode::file),
          .message = fmt::format(
              "{0}/metrics.jsonl: {1}, though the run has ended; remove {0} to train it again",
              run.dir,
              *wrong)};
}

// Takes what a run left that has ended so. One whose record cannot be read has failed, and says why
// unless it has said so itself.
void take_record(const SweepPoint& point, const RunOutcome& ended, SweepRow& row) {
  row.outcome = ended;
  try {
    row.summary = summarize_run(point.config.run.dir);
    row.outcome = judge(point, row.summary, ended);
  } catch (const FileError& problem) {
    row.summary = {};
    if (ended.stands()) {
      row.outcome = {.exit_code = static_cast<int>(ExitCode::file),
                     .message = fmt::format(
                         "{}; remove {} to train it again", problem.what(), point.config.run.dir)};
    }
  }
  row.is_turned_down = ended.stands() && !row.outcome->stands();
}

SweepRow read_row(const SweepPoint& point) {
  require_own_run(point);
  SweepRow row{.run = point.name, .settings = point.settings};
  if (const std::optional<RunOutcome> ended = read_outcome(point)) {
    take_record(point, *ended, row);
  }
  return row;
}

std::vector<SweepRow> read_rows(const Sweep& sweep) {
  std::vector<SweepRow> rows;
  rows.reserve(sweep.points.size());
  for (const SweepPoint& point : sweep.points) {
    rows.push_back(read_row(point));
  }
  return rows;
}

std::string label(const Sweep& sweep, std::size_t i) {
  return fmt::format("run {}/{} {}", i + 1, sweep.points.size(), sweep.points[i].name);
}

bool is_due(const SweepRow& row) {
  return !row.outcome || !row.outcome->stands();
}

std::string ending(const SweepRow& row) {
  if (row.status() == "failed") {
    return fmt::format(
        "failed with {}: {}", row.outcome->exit_code, first_line(row.outcome->message));
  }
  return fmt::format(
      "done, loss {}{}",
      row.summary.loss ? fmt::format("{:.4f}", *row.summary.loss) : "not known",
      row.summary.eval_loss ? fmt::format(", validation loss {:.4f}", *row.summary.eval_loss) : "");
}

std::int64_t steps_to_do(const SweepPoint& point) {
  return point.config.run.steps - saved_step(point);
}

// Trains a point to its end. False where a stop signal ended it.
bool run_row(const Sweep& sweep, std::size_t i, SweepPace& pace, SweepRow& row) {
  const SweepPoint& point = sweep.points[i];
  const std::int64_t planned = steps_to_do(point);
  const std::int64_t begin = point.config.run.steps - planned;
  const Again again = row.is_turned_down ? Again::yes : Again::no;
  row.outcome.reset();
  row.summary = {};
  const std::optional<RunOutcome> outcome = [&] {
    StatusLine line;  // gone before anything is printed
    return run_point(point, sweep.launch, again, [&] {
      if (line.is_due()) {
        const std::int64_t step = std::max(newest_step(point.config.run.dir), begin);
        line.show(fmt::format("{} step {}/{}, {}",
                              label(sweep, i),
                              step,
                              point.config.run.steps,
                              pace.time_left(step - begin)));
      }
    });
  }();
  if (!outcome) {
    return false;
  }
  take_record(point, *outcome, row);
  pace.end_run(planned, std::max<std::int64_t>(0, row.summary.steps - begin));
  return true;
}

ExitCode stopped_by_signal() {
  log_info("stopped by a signal; the same command goes on");
  return ExitCode::stopped;
}

// Returns what `--list` prints: a line for each point, under the number that `--only` takes.
std::string list_text(const Sweep& sweep) {
  const std::vector<SweepRow> rows = read_rows(sweep);
  std::string text;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    text += fmt::format("{:>4}  {:<7}  {}  {}\n",
                        i + 1,
                        rows[i].status(),
                        shown_line(rows[i].run),
                        shown_line(point_text(rows[i].settings)));
  }
  return text;
}

void require_built_devices(const Sweep& sweep) {
  for (const SweepPoint& point : sweep.points) {
    require_built(point.config.device);
  }
}

// Trains one point alone, beside others that other commands train: no lock is held, and the tables
// are left for `--collect`. Ends as the run has ended.
ExitCode run_only(const Sweep& sweep, std::int64_t number) {
  require_built_devices(sweep);
  if (number > std::ssize(sweep.points)) {
    throw ConfigError(fmt::format(
        "--only: must be 1 to {}, as --list numbers them; got {}", sweep.points.size(), number));
  }
  const auto i = static_cast<std::size_t>(number - 1);
  make_directories(sweep.dir);
  SweepRow row = read_row(sweep.points[i]);
  if (is_due(row)) {
    SweepPace pace(steps_to_do(sweep.points[i]));
    if (StopSignal::has_come() || !run_row(sweep, i, pace, row)) {
      return stopped_by_signal();
    }
  }
  print_progress(fmt::format("{}: {}\n", shown_line(label(sweep, i)), shown_line(ending(row))));
  return static_cast<ExitCode>(row.outcome->exit_code);
}

// All points and what is known of each, and the files that say so; no other command has them.
class SweepRunner {
 public:
  explicit SweepRunner(Sweep sweep)
      : sweep_(std::move(sweep)), lock_(claim_directory(sweep_.dir)), rows_(read_rows(sweep_)) {}

  // Makes the tables of what has ended so far.
  void collect() const {
    write_results();
    print_summary();
  }

  ExitCode run() {
    require_built_devices(sweep_);
    std::vector<std::size_t> due;
    std::int64_t steps = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (is_due(rows_[i])) {
        due.push_back(i);
        steps += steps_to_do(sweep_.points[i]);
      }
    }
    print_progress(
        fmt::format("{}: {} runs, {} to do\n", shown_line(sweep_.dir), rows_.size(), due.size()));
    write_results();
    SweepPace pace(steps);
    for (const std::size_t i : due) {
      const Clock::time_point start = Clock::now();
      if (StopSignal::has_come() || !run_row(sweep_, i, pace, rows_[i])) {
        write_results();  // a run that is tried again has not failed any more
        return stopped_by_signal();
      }
      write_results();
      print_progress(
          fmt::format("{}: {} after {} | {}\n",
                      shown_line(label(sweep_, i)),
                      shown_line(ending(rows_[i])),
                      duration_text(std::chrono::duration<double>(Clock::now() - start).count()),
                      pace.time_left()));
    }
    print_summary();
    return ExitCode::done;
  }

 private:
  // After every run, so that whatever ends this process leaves a table of all before it.
  void write_results() const {
    write_file_atomically(fmt::format("{}/results.csv", sweep_.dir),
                          results_csv(sweep_.keys, rows_));
    write_file_atomically(fmt::format("{}/results.json", sweep_.dir), results_json(rows_));
  }

  void print_summary() const {
    const auto count = [&](std::string_view status) {
      return std::ranges::count_if(rows_,
                                   [&](const SweepRow& row) { return row.status() == status; });
    };
    const auto pending = count("pending");
    print_lines(fmt::format("{} runs done, {} failed{}; results in {}/results.csv and .json\n",
                            count("done"),
                            count("failed"),
                            pending > 0 ? fmt::format(", {} to do", pending) : "",
                            shown_line(sweep_.dir)));
  }

  Sweep sweep_;
  LockedFile lock_;
  std::vector<SweepRow> rows_;  // as sweep_.points
};

}  // namespace

void add_sweep_command(Command root, ExitCode& code) {
  struct Options {
    std::string path{};
    std::optional<std::int64_t> only{};
    bool list = false;
    bool collect = false;
  };

  auto options = std::make_shared<Options>();
  Command command = root.add_command("sweep", "Train every point of a grid of settings");
  command.option(
      "SWEEP", &options->path, "JSON file with dir, base, grid and launch", {.required = true});
  command.flag("--list", &options->list, "Print the points, numbered, and what became of each");
  command.option("--only",
                 &options->only,
                 "Train this point alone; several may run at the same time",
                 {.limit = Limit::positive, .value_name = "N"});
  command.flag("--collect", &options->collect, "Write the tables of what has ended; train nothing");
  command.footer(
      "{\"dir\": \"sweeps/lr\", \"base\": \"configs/tiny_pipeline.json\",\n"
      " \"grid\": {\"optimizer.lr\": [1e-3, 3e-4], \"run.seed\": [1, 2, 3]}}\n"
      "trains six runs, one after the other, each in its own directory under dir; results.csv and\n"
      "results.json there have a row for each. A failed run is a row like any other. The same\n"
      "command goes on where it was stopped or killed; runs that are done are not run again.\n"
      "configs/README.md has every key. On a cluster an array of jobs trains one point each with\n"
      "--only, and --collect makes the tables.\n"
      "Example: slackline sweep configs/sweep_tiny.json\n"
      "Ends with 6 after SIGTERM, SIGINT or SIGUSR1, the run under way having saved.");
  command.runs([options, &code] {
    if (int{options->list} + int{options->collect} + int{options->only.has_value()} > 1) {
      throw ConfigError("--list, --only and --collect exclude each other; leave all but one out");
    }
    Sweep sweep = read_sweep(options->path);
    if (options->list) {
      print_lines(list_text(sweep));
      return;
    }
    StopSignal::install();
    if (options->only) {
      code = run_only(sweep, *options->only);
    } else if (options->collect) {
      SweepRunner(std::move(sweep)).collect();
    } else {
      code = SweepRunner(std::move(sweep)).run();
    }
  });
}

}  // namespace slackline
