// Things go to the disk in an order that a crash may show: after a power loss a name that a rename
// gave may be there while bytes that were written before it are not, unless they were synced. The
// order is taken from a library between the binary and the system (tests/support/disk_log.cpp).

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

namespace {

using testing::require_done;

struct DiskEvent {
  std::string kind;  // "sync" or "rename"
  std::string path;  // of a rename: the new name
  std::size_t bytes = 0;
};

// Runs the binary with these arguments; returns what it did to the disk, in order.
std::vector<DiskEvent> disk_events_of(const TrainingRun& run, std::vector<std::string> arguments) {
  const std::string log = run.path("disk.log");
  arguments.insert(arguments.begin(), {"LD_PRELOAD=" SL_DISK_LOG, "DISK_LOG=" + log, SL_BINARY});
  require_done(run_process("/usr/bin/env", arguments));
  std::istringstream lines(read_file(log));
  std::vector<DiskEvent> events;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    DiskEvent event;
    words >> event.kind;
    if (event.kind == "sync") {
      words >> event.bytes >> event.path;
    } else {
      std::string separator;
      words >> event.path >> separator >> event.path;
    }
    events.push_back(event);
  }
  return events;
}

// The record as far as it was on the disk when `event` came.
std::string synced_record(const std::vector<DiskEvent>& events,
                          std::size_t event,
                          const std::string& run_dir) {
  std::size_t bytes = 0;
  bool named = false;  // the directory was synced after the file
  for (std::size_t i = 0; i < event; ++i) {
    if (events[i].kind == "sync" && events[i].path == run_dir + "/metrics.jsonl") {
      bytes = events[i].bytes;
      named = false;
    }
    named = named || (events[i].kind == "sync" && events[i].path == run_dir && bytes > 0);
  }
  REQUIRE(named);
  return read_file(run_dir + "/metrics.jsonl").substr(0, bytes);
}

std::size_t count_steps(const std::string& record) {
  std::istringstream lines(record);
  std::size_t steps = 0;
  for (std::string line; std::getline(lines, line);) {
    steps += nlohmann::json::parse(line).contains("loss") ? 1 : 0;
  }
  return steps;
}

}  // namespace

TEST_CASE("the record of a checkpoint's steps is on the disk before the checkpoint has its name") {
  const TrainingRun run;
  const std::vector<DiskEvent> events =
      disk_events_of(run, run.arguments({"run.save_every=2"}, {}));
  std::vector<std::size_t> recorded;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const std::string& name = events[i].path;
    const bool whole = name.find('.', name.rfind('/')) == std::string::npos;
    if (events[i].kind == "rename" && whole &&
        name.find("/checkpoints/step-") != std::string::npos) {
      recorded.push_back(count_steps(synced_record(events, i, run.run_dir())));
    }
  }
  // Steps go on while a checkpoint is written, and theirs may be on the disk, too.
  REQUIRE(recorded.size() == 3);
  CHECK(recorded[0] >= 2);
  CHECK(recorded[1] >= 4);
  CHECK(recorded[2] == 6);
}

TEST_CASE("the record of a run is on the disk before a sweep says how the run ended") {
  const TrainingRun run;
  write_file_atomically(run.path("sweep.json"),
                        nlohmann::json{{"dir", run.path("sweep")},
                                       {"base", run.path("config.json")},
                                       {"grid", {{"run.seed", {1}}, {"run.save_every", {0}}}}}
                            .dump());
  const std::vector<DiskEvent> events = disk_events_of(run, {"sweep", run.path("sweep.json")});
  const auto outcome = std::find_if(events.begin(), events.end(), [](const DiskEvent& event) {
    return event.kind == "rename" && event.path.ends_with("/outcome.json");
  });
  REQUIRE(outcome != events.end());
  const std::string run_dir = outcome->path.substr(0, outcome->path.rfind('/'));
  const auto place = static_cast<std::size_t>(outcome - events.begin());
  CHECK(count_steps(synced_record(events, place, run_dir)) == 6);
}

}  // namespace slackline
