#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_io.h"
#include "core/log.h"
#include "core/shown_text.h"
#include "core/terminal.h"
#include "tools/cli/commands.h"
#include "tools/report/page.h"
#include "tools/report/run_record.h"
#include "tools/report/sweep_record.h"

namespace slackline {

namespace {

struct ReportOptions {
  std::vector<std::string> directories;
  std::string out;
};

// Whatever else has the name stays.
void refuse_foreign(const std::string& path) {
  if (!path_exists(path)) {
    return;
  }
  constexpr std::string_view kStart = report::kPageStart;
  if (!is_regular_file(path) || read_start(path, kStart.size()) != kStart) {
    throw FileError(
        fmt::format("{}: is no report and is not overwritten; choose another --out", path));
  }
}

void warn_of_cut(const std::string& directory, const report::Metrics& metrics) {
  if (metrics.cut) {
    log_warning(fmt::format(
        "{}/metrics.jsonl: the last line is cut and left out: {}", directory, *metrics.cut));
  }
}

std::string make_page(const std::vector<std::string>& directories) {
  std::vector<report::RunRecord> runs;
  std::vector<report::SweepRecord> sweeps;
  for (const std::string& directory : directories) {
    if (report::is_sweep_directory(directory)) {
      sweeps.push_back(report::read_sweep_results(directory));
      for (const report::SweepRun& run : sweeps.back().runs) {
        warn_of_cut(fmt::format("{}/{}", directory, run.directory), run.metrics);
      }
    } else if (report::is_run_directory(directory)) {
      runs.push_back(report::read_run(directory));
      warn_of_cut(directory, runs.back().metrics);
    } else {
      throw FileError(
          fmt::format("{}: is no run and no sweep: it has neither config.resolved.json nor "
                      "results.json",
                      directory));
    }
  }
  return report::page(runs, sweeps);
}

void write_report(const ReportOptions& options) {
  const std::string out = options.out.empty()
                              ? fmt::format("{}/report.html", options.directories.front())
                              : options.out;
  const std::string page = make_page(options.directories);
  refuse_foreign(out);
  write_file_atomically(out, page);
  print_lines(shown_line(out) + "\n");
}

}  // namespace

void add_report_command(Command root) {
  auto options = std::make_shared<ReportOptions>();
  Command command =
      root.add_command("report", "Make one HTML file of runs and sweeps, to look at anywhere");
  command.option("RUN_DIR",
                 &options->directories,
                 "Directories of runs (config.resolved.json) or of sweeps (results.json)",
                 {.required = true});
  command.option(
      "--out", &options->out, "The file to write; else report.html in the first RUN_DIR");
  command.footer(
      "The file needs no server, no network and no scripts. It shows losses, where each step's "
      "time went,\n"
      "a step's timeline as predicted (and as measured, where the run was trained with "
      "trace=true), bytes\n"
      "raw and sent, and of sweeps tables and speed against loss. A last line of metrics.jsonl "
      "that a crash\n"
      "cut is left out, with a remark. Ends with 3, and writes nothing, when a directory is no run "
      "or a file\n"
      "is missing or corrupt, or when --out exists and is no report.\n"
      "Example: slackline report runs/first runs/second --out comparison.html");
  command.runs([options] { write_report(*options); });
}

}  // namespace slackline
