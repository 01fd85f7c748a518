#include "tools/sweep/sweep_run.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/checkpoint/checkpoint_directory.h"
#include "core/checkpoint/manifest.h"
#include "core/file_errors.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/locked_file.h"
#include "core/log.h"
#include "tools/record/run_directory.h"
#include "tools/run/stop_signal.h"
#include "tools/sweep/child_process.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kLookAgain{20};
constexpr const char* kOwnBinary = "/proc/self/exe";

// How lines of a log begin, digits as zeros, and those of errors go on (core/log.cpp).
constexpr std::string_view kLogTime = "00:00:00 ";
constexpr std::string_view kLogError = "error ";
constexpr std::string_view kLauncherRule = "-----";  // mpirun draws one above what it has to say

std::string file_of(const SweepPoint& point, std::string_view name) {
  return fmt::format("{}/{}", point.config.run.dir, name);
}

bool holds_run(const SweepPoint& point) {
  try {
    RunDirectory(point.config.run.dir).refuse_occupied();
  } catch (const FileError&) {
    return true;
  }
  return false;
}

// A stored config with what defaults are today, and in today's place.
std::string resolve_again(const std::string& stored, const SweepPoint& point) {
  return reading(stored, [&] {
    JsonReader document = JsonReader::parse_file(stored);
    document.set(fmt::format("run.dir={}", Json(point.config.run.dir).dump()));
    static_cast<void>(read_train_config(document));
    return document.resolved();
  });
}

// "optimizer.lr" of "/optimizer/lr".
std::string dotted(std::string pointer) {
  pointer.erase(0, 1);
  std::replace(pointer.begin(), pointer.end(), '/', '.');
  return pointer;
}

// The first key that differs, with both values.
std::string first_difference(const std::string& stored, const std::string& current) {
  const Json old_values = Json::parse(stored).flatten();
  const Json new_values = Json::parse(current).flatten();
  const auto text_of = [](const Json& values, const std::string& key) {
    return values.contains(key) ? values[key].dump() : "absent";
  };
  for (const Json* values : {&new_values, &old_values}) {
    for (const auto& member : values->items()) {
      const std::string before = text_of(old_values, member.key());
      const std::string now = text_of(new_values, member.key());
      if (before != now) {
        return fmt::format("{} was {} and is now {}", dotted(member.key()), before, now);
      }
    }
  }
  return "their keys stand in another order";
}

// A run's output, which no other process writes to: those that inherit the descriptor keep the
// lock. Nothing where a stop signal arrives while it waits for one.
std::optional<LockedFile> own_output(const std::string& path) {
  std::optional<LockedFile> file = LockedFile::open(path);
  if (!file) {
    log_info(fmt::format("{}: waiting for the run that an earlier sweep left behind", path));
  }
  while (!file && !StopSignal::has_come()) {
    std::this_thread::sleep_for(kLookAgain);
    file = LockedFile::open(path);
  }
  return file;
}

// A rehearsal saves nothing to go on from, and train refuses a directory with a run in it.
void clear_rehearsal(const SweepPoint& point) {
  for (const char* name : {"config.resolved.json", "metrics.jsonl"}) {
    remove_tree(file_of(point, name));
  }
}

// Where this program lies, from which it was started.
std::string own_program() {
  std::string path = link_target(kOwnBinary);
  if (!path_exists(path)) {
    throw FileError(
        with_hint(fmt::format("{}: the program that runs this sweep is no longer there", path),
                  "the same command, started anew, goes on with the one that is there now"));
  }
  return path;
}

std::vector<std::string> command_words(const SweepPoint& point,
                                       const std::vector<std::string>& launch,
                                       bool resume) {
  constexpr std::string_view kRanks = "{ranks}";
  const std::string ranks = std::to_string(point.config.parallel.num_ranks());
  std::vector<std::string> words;
  words.reserve(launch.size() + 6);
  for (std::string word : launch) {
    for (std::size_t at = 0; (at = word.find(kRanks, at)) != std::string::npos;) {
      word.replace(at, kRanks.size(), ranks);
    }
    words.push_back(std::move(word));
  }
  // The link is the program even when its file has been replaced since; a launcher has processes of
  // its own, for which the link is none.
  words.push_back(launch.empty() ? kOwnBinary : own_program());
  words.insert(words.end(), {"train", file_of(point, "config.json")});
  if (resume) {
    words.emplace_back("--resume");
  }
  if (launch.empty() && point.config.parallel.num_ranks() > 1) {
    words.insert(words.end(), {"--ranks", ranks});
  }
  return words;
}

void record_outcome(const SweepPoint& point, const RunOutcome& outcome) {
  const Json json = {{"exit_code", outcome.exit_code}, {"message", outcome.message}};
  write_file_atomically(
      file_of(point, "outcome.json"),
      fmt::format("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace)));
}

// What the attempt printed after the first `before` bytes of the file.
std::string message_of(const SweepPoint& point, int exit_code, std::size_t before) {
  if (exit_code == static_cast<int>(ExitCode::done)) {
    return "";
  }
  const int signal = exit_code - kEndedBySignal;
  return signal > 0 && signal < NSIG
             ? fmt::format("ended by a signal: {}", ::strsignal(signal))
             : last_message(read_file(file_of(point, "stderr.txt")).substr(before));
}

// The line starts with the time: it begins a message.
bool is_logged(std::string_view line) {
  const std::string_view start = line.substr(0, kLogTime.size());
  return std::equal(
      start.begin(), start.end(), kLogTime.begin(), kLogTime.end(), [](char a, char b) {
        return b == '0' ? a >= '0' && a <= '9' : a == b;
      });
}

// A rehearsal begins anew each time.
bool resumes(const SweepPoint& point) {
  return point.config.device != Device::rehearsal && holds_run(point);
}

// The step of another run's checkpoint with which this one begins; 0 where there is none, or none
// that train would take.
std::int64_t step_resumed_from(const SweepPoint& point) {
  const std::string& checkpoint = point.config.checkpoint.resume_from;
  try {
    return checkpoint.empty() ? 0 : read_manifest(fmt::format("{}/manifest.json", checkpoint)).step;
  } catch (const FileError&) {
    return 0;
  }
}

// Nothing where the run was asked to end before its last step.
std::optional<int> wait_for_end(ChildProcess& child, const std::function<void()>& look) {
  bool asked = false;
  std::optional<int> code;
  while (!(code = child.exit_code())) {
    if (!asked && StopSignal::has_come()) {
      child.ask_to_end();
      asked = true;
    }
    look();
    std::this_thread::sleep_for(kLookAgain);
  }
  const bool stopped = asked || StopSignal::has_come();
  return stopped && *code != static_cast<int>(ExitCode::done) ? std::nullopt : code;
}

}  // namespace

std::optional<RunOutcome> read_outcome(const SweepPoint& point) {
  const std::string path = file_of(point, "outcome.json");
  if (!path_exists(path)) {
    return std::nullopt;
  }
  return reading(path, [&] {
    JsonReader document = JsonReader::parse_file(path);
    RunOutcome outcome{
        .exit_code = static_cast<int>(document.integer("exit_code", {.min = 0, .max = 255})),
        .message = document.string("message")};
    document.finish();
    return outcome;
  });
}

void require_own_run(const SweepPoint& point) {
  const std::string stored = file_of(point, "config.json");
  const bool begun = holds_run(point) || path_exists(file_of(point, "outcome.json"));
  if (!begun) {
    return;
  }
  if (!path_exists(stored)) {
    throw FileError(fmt::format("{}: holds a run that no sweep began; choose another \"dir\"",
                                point.config.run.dir));
  }
  const std::string resolved = resolve_again(stored, point);
  if (resolved != point.resolved) {
    throw FileError(with_hint(
        fmt::format("{}: holds a run of another config: {}",
                    point.config.run.dir,
                    first_difference(resolved, point.resolved)),
        "put the base config back, choose another \"dir\", or remove this run's directory"));
  }
}

std::int64_t saved_step(const SweepPoint& point) {
  const std::vector<StepDirectory> saved =
      list_checkpoints(RunDirectory(point.config.run.dir).checkpoints());
  return saved.empty() ? step_resumed_from(point) : saved.back().step;
}

std::optional<RunOutcome> run_point(const SweepPoint& point,
                                    const std::vector<std::string>& launch,
                                    Again again,
                                    const std::function<void()>& look) {
  make_directories(point.config.run.dir);
  const std::string messages = file_of(point, "stderr.txt");
  const std::optional<LockedFile> error = own_output(messages);
  const std::optional<LockedFile> out =
      error ? own_output(file_of(point, "stdout.txt")) : std::nullopt;
  if (!out) {
    return std::nullopt;
  }
  // Another command may have trained it, of this config or another, until the lock was free.
  require_own_run(point);
  if (std::optional<RunOutcome> ended = read_outcome(point);
      ended && ended->stands() && again == Again::no) {
    return ended;
  }
  const std::vector<std::string> words = command_words(point, launch, resumes(point));
  const std::size_t before = file_bytes(messages);
  remove_tree(file_of(point, "outcome.json"));
  write_file_atomically(file_of(point, "config.json"), point.resolved);
  if (point.config.device == Device::rehearsal) {
    clear_rehearsal(point);
  }
  // Open MPI passes SIGUSR1 on to its ranks and kills them on SIGTERM.
  ChildProcess child({.words = words,
                      .out = out->descriptor(),
                      .error = error->descriptor(),
                      .stop_signal = launch.empty() ? SIGTERM : SIGUSR1});
  const std::optional<int> code = wait_for_end(child, look);
  if (!code) {
    return std::nullopt;
  }
  RunOutcome outcome{.exit_code = *code, .message = message_of(point, *code, before)};
  RunDirectory(point.config.run.dir).sync_record();  // the outcome vouches for it
  record_outcome(point, outcome);
  return outcome;
}

std::string last_message(std::string_view printed) {
  std::string message;
  std::string last_line;
  bool found = false;      // an error
  bool continues = false;  // the line before belongs to it
  while (!printed.empty()) {
    const std::size_t end = printed.find('\n');
    const std::string_view line = printed.substr(0, end);
    printed.remove_prefix(end == std::string_view::npos ? printed.size() : end + 1);
    if (!line.empty()) {
      last_line = line;
    }
    if (is_logged(line)) {
      const std::string_view text = line.substr(kLogTime.size());
      continues = text.starts_with(kLogError);
      found = found || continues;
      message = continues ? text.substr(kLogError.size()) : message;
    } else if (line.empty() || line.starts_with(kLauncherRule)) {
      continues = false;
    } else if (continues) {
      message.append("\n").append(line);
    }
  }
  return found ? message : last_line;
}

}  // namespace slackline
