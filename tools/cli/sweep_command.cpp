#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/file_io.h"
#include "core/locked_file.h"
#include "core/log.h"
#include "core/shown_text.h"
#include "core/terminal.h"
#include "tools/cli/commands.h"
#include "tools/record/metrics.h"
#include "tools/record/run_summary.h"
#include "tools/run/stop_signal.h"
#include "tools/sweep/sweep_file.h"
#include "tools/sweep/sweep_progress.h"
#include "tools/sweep/sweep_run.h"
#include "tools/sweep/sweep_table.h"

namespace slackline {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRedraw{500};

// Two sweeps in one directory would run the same points twice.
LockedFile claim_directory(const std::string& dir) {
  make_directories(dir);
  const std::string path = fmt::format("{}/sweep.lock", dir);
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
  // A run that was begun from another one's last step has none of its own.
  const bool no_steps = summary.steps == 0 && !point.config.checkpoint.resume_from.empty();
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

SweepRow read_row(const SweepPoint& point) {
  require_own_run(point);
  SweepRow row{.run = point.name, .settings = point.settings, .outcome = read_outcome(point)};
  if (row.outcome) {
    row.summary = summarize_run(point.config.run.dir);
    row.outcome = judge(point, row.summary, *row.outcome);
  }
  return row;
}

// A sweep under way: the points, what is known of each, and the files that say so.
class SweepRunner {
 public:
  explicit SweepRunner(Sweep sweep) : sweep_(std::move(sweep)), lock_(claim_directory(sweep_.dir)) {
    rows_.reserve(sweep_.points.size());
    for (const SweepPoint& point : sweep_.points) {
      rows_.push_back(read_row(point));
    }
  }

  ExitCode run() {
    std::vector<std::size_t> due;
    std::int64_t steps = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (!rows_[i].outcome || !rows_[i].outcome->stands()) {
        due.push_back(i);
        steps += steps_to_do(sweep_.points[i]);
      }
    }
    print_progress(
        fmt::format("{}: {} runs, {} to do\n", shown_line(sweep_.dir), rows_.size(), due.size()));
    write_results();
    SweepProgress progress(steps);
    for (const std::size_t i : due) {
      if (StopSignal::received() != 0 || !run_row(i, progress)) {
        log_info("stopped by a signal; the same command goes on");
        return ExitCode::stopped;
      }
    }
    print_summary();
    return ExitCode::done;
  }

 private:
  static std::int64_t steps_to_do(const SweepPoint& point) {
    return point.config.run.steps - saved_step(point);
  }

  // False where a stop signal ended it.
  bool run_row(std::size_t i, SweepProgress& progress) {
    const SweepPoint& point = sweep_.points[i];
    const std::int64_t planned = steps_to_do(point);
    const std::int64_t begin = point.config.run.steps - planned;
    const Clock::time_point start = Clock::now();
    Clock::time_point shown = start;
    const auto show = [&] {
      if (progress.visible() && Clock::now() - shown > kRedraw) {
        shown = Clock::now();
        const std::int64_t step = std::max(newest_step(point.config.run.dir), begin);
        progress.show(fmt::format("{} step {}/{}", label(i), step, point.config.run.steps),
                      step - begin);
      }
    };
    std::optional<RunOutcome> outcome = run_point(point, sweep_.launch, show);
    progress.hide();
    if (!outcome) {
      return false;
    }
    SweepRow& row = rows_[i];
    row.summary = summarize_run(point.config.run.dir);
    row.outcome = judge(point, row.summary, *outcome);
    write_results();
    progress.end_run(planned, std::max<std::int64_t>(0, row.summary.steps - begin));
    print_progress(
        fmt::format("{}: {} after {} | {}\n",
                    shown_line(label(i)),
                    shown_line(ending(row)),
                    duration_text(std::chrono::duration<double>(Clock::now() - start).count()),
                    progress.time_left()));
    return true;
  }

  [[nodiscard]] std::string label(std::size_t i) const {
    return fmt::format("run {}/{} {}", i + 1, rows_.size(), rows_[i].run);
  }

  static std::string ending(const SweepRow& row) {
    if (row.status() == "failed") {
      const std::string& message = row.outcome->message;
      return fmt::format(
          "failed with {}: {}", row.outcome->exit_code, message.substr(0, message.find('\n')));
    }
    return fmt::format("done, loss {}{}",
                       row.summary.loss ? fmt::format("{:.4f}", *row.summary.loss) : "not known",
                       row.summary.eval_loss
                           ? fmt::format(", validation loss {:.4f}", *row.summary.eval_loss)
                           : "");
  }

  // After every run, so that whatever ends this process leaves a table of all before it.
  void write_results() const {
    write_file_atomically(fmt::format("{}/results.csv", sweep_.dir),
                          results_csv(sweep_.keys, rows_));
    write_file_atomically(fmt::format("{}/results.json", sweep_.dir), results_json(rows_));
  }

  void print_summary() const {
    const auto failed = std::count_if(
        rows_.begin(), rows_.end(), [](const SweepRow& row) { return row.status() == "failed"; });
    print_lines(fmt::format("{} runs done, {} failed; results in {}/results.csv and .json\n",
                            static_cast<std::ptrdiff_t>(rows_.size()) - failed,
                            failed,
                            shown_line(sweep_.dir)));
  }

  Sweep sweep_;
  LockedFile lock_;
  std::vector<SweepRow> rows_;  // as sweep_.points
};

}  // namespace

void add_sweep_command(Command root, ExitCode& code) {
  auto path = std::make_shared<std::string>();
  Command command = root.add_command("sweep", "Train every point of a grid of settings");
  command.option(
      "SWEEP", path.get(), "JSON file with dir, base, grid and launch", {.required = true});
  command.footer(
      "{\"dir\": \"sweeps/lr\", \"base\": \"configs/tiny_pipeline.json\",\n"
      " \"grid\": {\"optimizer.lr\": [1e-3, 3e-4], \"run.seed\": [1, 2, 3]}}\n"
      "trains six runs, one after the other, each in its own directory under dir; results.csv and\n"
      "results.json there have a row for each. A failed run is a row like any other. The same\n"
      "command goes on where it was stopped or killed; runs that are done are not run again.\n"
      "configs/README.md has every key.\n"
      "Example: slackline sweep configs/sweep_tiny.json\n"
      "Ends with 6 after SIGTERM, SIGINT or SIGUSR1, the run under way having saved.");
  command.runs([path, &code] {
    Sweep sweep = read_sweep(*path);
    StopSignal::install();
    code = SweepRunner(std::move(sweep)).run();
  });
}

}  // namespace slackline
