// Whole sweeps of the binary: what they leave behind, whatever happens to them on the way.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "core/locked_file.h"
#include "core/shown_text.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/training_run.h"
#include "tools/sweep/sweep_file.h"

namespace slackline {

using Catch::Contains;
using testing::require_done;
using testing::require_refusal;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::chrono::milliseconds kLookAgain{2};

// A small corpus and config with sweeps over it.
class SmallSweep {
 public:
  // Writes NAME.json, a sweep in the directory NAME with this grid and the keys of `more`.
  void write(const std::string& name, const Json& grid, const Json& more = Json::object()) const {
    Json sweep = {{"dir", run_.path(name)}, {"base", run_.path("config.json")}, {"grid", grid}};
    for (const auto& member : more.items()) {
      sweep[member.key()] = member.value();
    }
    write_file_atomically(file(name), sweep.dump());
  }

  [[nodiscard]] std::string path(const std::string& name) const { return run_.path(name); }

  [[nodiscard]] std::string file(const std::string& name) const { return path(name) + ".json"; }

  [[nodiscard]] ProcessResult start(const std::string& name) const {
    return run_slackline({"sweep", file(name)});
  }

  // Starts the sweep, which has to end well.
  ProcessResult finish(const std::string& name) const { return require_done(start(name)); }

  [[nodiscard]] Json rows(const std::string& name) const {
    return Json::parse(read_file(path(name) + "/results.json"));
  }

  // Without what differs from one time to the next.
  [[nodiscard]] Json settled_rows(const std::string& name) const {
    Json all = rows(name);
    for (Json& row : all) {
      for (const char* key : {"step_seconds", "tokens_per_second", "exposed_seconds"}) {
        row.erase(key);
      }
      for (Json& axis : row["axes"]) {
        axis.erase("exposed_seconds");
      }
    }
    return all;
  }

  [[nodiscard]] std::string in_run(const std::string& name, int row, const char* entry) const {
    return fmt::format("{}/{}/{}", path(name), rows(name).at(row)["run"].get<std::string>(), entry);
  }

  // The only run of a sweep over one point, before there are results.
  [[nodiscard]] std::string only_run(const std::string& name) const {
    if (std::filesystem::exists(path(name))) {
      for (const auto& entry : std::filesystem::directory_iterator(path(name))) {
        if (entry.is_directory()) {
          return entry.path();
        }
      }
    }
    return path(name) + "/none";
  }

  [[nodiscard]] const TrainingRun& run() const { return run_; }

 private:
  TrainingRun run_;
};

std::size_t num_lines(const std::string& path) {
  if (!std::filesystem::exists(path)) {
    return 0;
  }
  const std::string text = read_file(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// Starts a sweep over one long run and waits until `done`.
std::unique_ptr<RunningProcess> start_long_sweep(const SmallSweep& sweep,
                                                 const std::function<bool()>& done) {
  sweep.write("out", {{"run.steps", {1'000'000}}, {"run.eval_every", {0}}});
  auto process = std::make_unique<RunningProcess>(
      SL_BINARY, std::vector<std::string>{"sweep", sweep.file("out")});
  while (!done()) {
    std::this_thread::sleep_for(kLookAgain);
  }
  return process;
}

}  // namespace

TEST_CASE("a sweep trains each point of its grid in its own directory and tabulates them") {
  const SmallSweep sweep;
  sweep.write("out", {{"optimizer.lr", {0.01, 0.001}}, {"parallel.pipeline", {1, 2}}});
  REQUIRE_THAT(sweep.finish("out").out, Contains("run 4/4 lr-0.001_pipeline-2-"));
  const Json rows = sweep.rows("out");
  REQUIRE(rows.size() == 4);

  // A row's numbers are those of the run alone.
  REQUIRE(sweep.run().train().exit_code == 0);
  REQUIRE(rows[0]["settings"] == Json({{"optimizer.lr", 0.01}, {"parallel.pipeline", 1}}));
  REQUIRE(rows[0]["status"] == "done");
  REQUIRE(rows[0]["steps"] == 6);
  REQUIRE(rows[0]["loss"] == sweep.run().metric("loss").back());
  REQUIRE(rows[0]["eval_loss"] == sweep.run().metric("eval_loss").back());
  REQUIRE(rows[1]["loss"] == rows[0]["loss"]);  // two stages, as threads
  REQUIRE(rows[1]["axes"]["pipeline"]["sent_bytes"] > 0);
  REQUIRE(rows[2]["loss"] != rows[0]["loss"]);
  REQUIRE(std::filesystem::exists(sweep.in_run("out", 3, "config.resolved.json")));
  const std::string csv = read_file(sweep.path("out") + "/results.csv");
  REQUIRE_THAT(csv, Catch::StartsWith("run,optimizer.lr,parallel.pipeline,status,"));
  REQUIRE(num_lines(sweep.path("out") + "/results.csv") == 5);

  // What is done is not done again, whatever else has been put into the directory.
  write_file_atomically(sweep.path("out") + "/report.html", "<html>");
  write_file_atomically(sweep.in_run("out", 0, "report.html"), "<html>");
  REQUIRE_THAT(sweep.finish("out").out, Contains("4 runs, 0 to do"));
  REQUIRE(sweep.rows("out") == rows);
  REQUIRE(read_file(sweep.path("out") + "/results.csv") == csv);
}

TEST_CASE("a failed run is a row, and the next start tries again what may have another end") {
  const SmallSweep sweep;
  const std::string missing = sweep.path("a,\"b\"\nc");
  sweep.write("out",
              {{{"data.train.0.path", {missing}}}, {{"optimizer.lr", {1e30, 0.01}}}},
              {{"base", sweep.path("unclipped.json")}});
  Json base = Json::parse(read_file(sweep.path("config.json")));
  base["optimizer"] = {{"clip_norm", 0}};
  write_file_atomically(sweep.path("unclipped.json"), base.dump());
  REQUIRE_THAT(sweep.finish("out").out, Contains("1 runs done, 2 failed"));
  const Json rows = sweep.rows("out");
  REQUIRE(rows[0]["exit_code"] == 3);
  REQUIRE_THAT(rows[0]["message"].get<std::string>(), Catch::StartsWith(shown_line(missing)));
  REQUIRE(rows[1]["exit_code"] == 5);
  REQUIRE(rows[1]["status"] == "failed");
  REQUIRE_THAT(rows[1]["message"].get<std::string>(), Contains("not finite"));
  REQUIRE(rows[2]["status"] == "done");

  REQUIRE_THAT(sweep.finish("out").out, Contains("3 runs, 1 to do"));
  REQUIRE(sweep.rows("out") == rows);
  for (const std::string name : {"config.json", "outcome.json"}) {
    const std::string path = sweep.in_run("out", 2, name.c_str());
    const std::string whole = read_file(path);
    write_file_atomically(path, "{}");
    require_refusal(sweep.start("out"), 3, path);
    write_file_atomically(path, whole);
  }
  for (const char* suffix : {".bin", ".idx"}) {
    std::filesystem::copy(sweep.path("corpus") + suffix, missing + suffix);
  }
  std::filesystem::copy(sweep.path("corpus") + ".tokenizer.json", missing + ".tokenizer.json");
  REQUIRE_THAT(sweep.finish("out").out, Contains("2 runs done, 1 failed"));
}

TEST_CASE("a run whose record stops early or jumps is no row of a table, and is tried again") {
  const SmallSweep sweep;
  sweep.write("out", {{"run.seed", {1, 2}}});
  sweep.finish("out");
  REQUIRE(sweep.rows("out")[0]["status"] == "done");
  const std::string path = sweep.in_run("out", 0, "metrics.jsonl");
  const std::string whole = read_file(path);
  // As a power loss may leave it: without the steps from 4 on, or, where the run has gone on since,
  // without step 4 alone, or without its first steps.
  const std::size_t fourth = whole.find("{\"step\": 4,");
  const std::size_t fifth = whole.find("{\"step\": 5,");
  const std::size_t third = whole.find("{\"step\": 3,");
  REQUIRE(third != std::string::npos);
  REQUIRE((fourth != std::string::npos && fifth != std::string::npos));
  const auto [left, words] = GENERATE_REF(table<std::string, std::string>(
      {{whole.substr(0, fourth), "ends with step 3 of 6"},
       {whole.substr(0, fourth) + whole.substr(fifth), "has step 5 behind step 3"},
       {whole.substr(third), "begins with step 3"}}));
  write_file_atomically(path, left);

  const ProcessResult again = sweep.finish("out");
  const Json rows = sweep.rows("out");
  CHECK_THAT(again.out, Contains("2 runs, 1 to do"));
  CHECK(rows[0]["status"] == "failed");
  CHECK(rows[0]["exit_code"] == 3);
  CHECK_THAT(rows[0]["message"].get<std::string>(), Contains(words) && Contains("remove"));
  CHECK(rows[1]["status"] == "done");

  std::filesystem::remove_all(std::filesystem::path(path).parent_path());
  sweep.finish("out");
  CHECK(sweep.rows("out")[0]["status"] == "done");
  CHECK(sweep.rows("out")[0]["steps"] == 6);
}

TEST_CASE("a sweep killed at any moment and restarted gives the same table") {
  const SmallSweep sweep;
  const Json grid = {{{"run.seed", {1, 2}}, {"run.save_every", {1, 0}}},
                     {{"device", {"rehearsal"}}},
                     {{"data.train.0.path", {sweep.path("missing")}}}};
  sweep.write("whole", grid);
  sweep.finish("whole");
  sweep.write("out", grid);
  int killed = 0;
  for (const int milliseconds : {0, 5, 20, 40, 60, 80, 110, 150, 200, 260, 35}) {
    RunningProcess process(SL_BINARY, {"sweep", sweep.file("out")});
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    ::kill(process.id(), SIGKILL);
    killed += process.wait().exit_code == 128 + SIGKILL ? 1 : 0;
  }
  REQUIRE(killed > 3);
  sweep.finish("out");
  Json rows = sweep.settled_rows("out");
  REQUIRE(rows == sweep.settled_rows("whole"));
  REQUIRE(rows[5]["exit_code"] == 3);
}

TEST_CASE("a run under way when its sweep is stopped or killed saves, and the next goes on there") {
  const int signal = GENERATE(SIGTERM, SIGUSR1, SIGINT, SIGKILL);
  INFO(signal);
  const SmallSweep sweep;
  const auto metrics_there = [&] {
    return num_lines(sweep.only_run("out") + "/metrics.jsonl") > 2;
  };
  auto process = start_long_sweep(sweep, metrics_there);
  ::kill(process->id(), signal);
  REQUIRE(process->wait().exit_code == (signal == SIGKILL ? 128 + SIGKILL : 6));
  REQUIRE(sweep.rows("out")[0]["status"] == "pending");

  // A run left behind is waited for, so what it saves is there.
  const std::string messages = sweep.in_run("out", 0, "stderr.txt");
  process = start_long_sweep(
      sweep, [&] { return read_file(messages).find("loaded") != std::string::npos; });
  ::kill(process->id(), SIGTERM);
  REQUIRE(process->wait().exit_code == 6);
  REQUIRE_THAT(read_file(messages), Contains("stopped by a signal after step"));
}

TEST_CASE("values that are added keep the runs there are, and another base is refused") {
  const SmallSweep sweep;
  sweep.write("out", {{"run.seed", {1, 2}}});
  sweep.finish("out");
  const Json first = sweep.rows("out");
  sweep.write("out", {{"run.seed", {3, 2, 1}}});
  REQUIRE_THAT(sweep.finish("out").out, Contains("3 runs, 1 to do"));
  REQUIRE(sweep.rows("out")[2] == first[0]);
  REQUIRE(sweep.rows("out")[1] == first[1]);

  Json base = Json::parse(read_file(sweep.path("config.json")));
  base["optimizer"]["lr"] = 0.5;
  write_file_atomically(sweep.path("config.json"), base.dump());
  const std::string csv = read_file(sweep.path("out") + "/results.csv");
  require_refusal(sweep.start("out"), 3, "optimizer.lr was 0.01 and is now 0.5");
  REQUIRE(read_file(sweep.path("out") + "/results.csv") == csv);
}

TEST_CASE("two sweeps in one directory are refused, and so is a run that no sweep began") {
  const SmallSweep sweep;
  sweep.write("out", {{"run.seed", {1}}});
  sweep.finish("out");
  const auto other = LockedFile::open(sweep.path("out") + "/sweep.lock");
  require_refusal(sweep.start("out"), 3, "another sweep is at work here");
  sweep.write("out2", {{"run.seed", {1}}});
  const std::string name = sweep.rows("out")[0]["run"];
  REQUIRE(sweep.run()
              .train({fmt::format("run.dir={}", sweep.path(fmt::format("out2/{}", name)))})
              .exit_code == 0);
  require_refusal(sweep.start("out2"), 3, "holds a run that no sweep began");
}

TEST_CASE("tables that no sweep has made stay as they are") {
  const SmallSweep sweep;
  sweep.write("out", {{"run.seed", {1}}});
  std::filesystem::create_directory(sweep.path("out"));
  for (const std::string name : {"results.csv", "results.json"}) {
    const std::string path = sweep.path("out") + "/" + name;
    write_file_atomically(path, "mine");
    require_refusal(sweep.start("out"), 3, name + ": was not written by a sweep");
    require_refusal(run_slackline({"sweep", sweep.file("out"), "--collect"}), 3, name);
    REQUIRE(read_file(path) == "mine");
    std::filesystem::remove(path);
  }
  sweep.finish("out");
  sweep.finish("out");
}

TEST_CASE("a record that cannot be read is a failed row, and the others are trained") {
  const SmallSweep sweep;
  sweep.write("out", {{"run.seed", {1}}});
  sweep.finish("out");
  const std::string path = sweep.in_run("out", 0, "metrics.jsonl");
  const std::string whole = read_file(path);
  write_file_atomically(path, "no line\n" + whole);
  sweep.write("out", {{"run.seed", {1, 2}}});
  sweep.finish("out");
  const Json rows = sweep.rows("out");
  CHECK(rows[0]["status"] == "failed");
  CHECK(rows[0]["exit_code"] == 3);
  CHECK_THAT(rows[0]["message"].get<std::string>(), Contains(path) && Contains("remove"));
  CHECK(rows[1]["status"] == "done");
}

TEST_CASE("a run that another command has trained meanwhile is looked at once more") {
  const SmallSweep sweep;
  sweep.write("same", {{"run.seed", {1}}});
  sweep.finish("same");
  const std::string name = sweep.rows("same")[0]["run"];
  Json base = Json::parse(read_file(sweep.path("config.json")));
  base["optimizer"]["lr"] = 0.5;
  write_file_atomically(sweep.path("other_base.json"), base.dump());
  sweep.write("other", {{"run.seed", {1}}}, {{"base", sweep.path("other_base.json")}});
  sweep.finish("other");

  const std::string made = GENERATE("same", "other");
  INFO(made);
  sweep.write("out", {{"run.seed", {1}}});
  const std::string run = fmt::format("{}/{}", sweep.path("out"), name);
  std::filesystem::create_directories(run);
  auto lock = LockedFile::open(run + "/stderr.txt");
  REQUIRE(lock);
  RunningProcess process(SL_BINARY, {"sweep", sweep.file("out")});
  while (!std::filesystem::exists(sweep.path("out") + "/results.json")) {
    std::this_thread::sleep_for(kLookAgain);
  }
  for (const auto& entry : std::filesystem::directory_iterator(sweep.path(made) + "/" + name)) {
    if (entry.path().filename() != "stderr.txt") {
      std::filesystem::copy(entry.path(),
                            run + "/" + entry.path().filename().string(),
                            std::filesystem::copy_options::recursive |
                                std::filesystem::copy_options::overwrite_existing);
    }
  }
  lock.reset();
  const ProcessResult result = process.wait();
  if (made == "same") {
    CHECK(result.exit_code == 0);
    CHECK(sweep.rows("out")[0]["loss"] == sweep.rows("same")[0]["loss"]);
    CHECK(read_file(run + "/stderr.txt").empty());  // nothing was trained again
  } else {
    require_refusal(result, 3, "holds a run of another config: optimizer.lr");
  }
}

TEST_CASE("a sweep whose parent ignores its children's end sees that of its runs") {
  const SmallSweep sweep;
  sweep.write("out", {{"run.seed", {1}}});
  RunningProcess process(
      "/bin/sh",
      {"-c", fmt::format("trap '' CHLD; exec '{}' sweep '{}'", SL_BINARY, sweep.file("out"))});
  CHECK(process.wait().exit_code == 0);
  CHECK(sweep.rows("out")[0]["status"] == "done");
}

TEST_CASE("points trained one by one, at the same time, make the tables of the whole sweep") {
  const SmallSweep sweep;
  const Json grid = {{"optimizer.lr", {0.01, 1e30}}, {"run.seed", {1, 2}}};
  sweep.write("whole", grid);
  sweep.finish("whole");
  sweep.write("out", grid);
  const auto start = [&](const std::vector<std::string>& arguments) {
    return run_slackline(with({"sweep", sweep.file("out")}, arguments));
  };
  const ProcessResult fresh = require_done(start({"--list"}));
  REQUIRE_THAT(
      fresh.out,
      Contains("   1  pending  lr-0.01_seed-1-") && Contains("optimizer.lr=1e+30, run.seed=2"));
  REQUIRE_FALSE(std::filesystem::exists(sweep.path("out")));

  {
    RunningProcess beside(SL_BINARY, {"sweep", sweep.file("out"), "--only", "2"});
    REQUIRE(start({"--only", "1"}).exit_code == 0);
    REQUIRE(beside.wait().exit_code == 0);
  }
  REQUIRE_FALSE(std::filesystem::exists(sweep.path("out") + "/results.json"));
  const ProcessResult failed = start({"--only", "3"});
  require_refusal(failed, 5, "");
  REQUIRE_THAT(failed.out, Contains("run 3/4") && Contains("failed with 5"));
  REQUIRE_THAT(start({"--list"}).out,
               Contains("   2  done     lr-0.01_seed-2-") && Contains("   3  failed   ") &&
                   Contains("   4  pending  "));
  REQUIRE_THAT(start({"--collect"}).out, Contains("2 runs done, 1 failed, 1 to do"));
  REQUIRE(sweep.rows("out")[3]["status"] == "pending");

  REQUIRE(start({"--only", "4"}).exit_code == 5);
  REQUIRE_THAT(start({"--collect"}).out, Contains("2 runs done, 2 failed; "));
  const auto rows_without_paths = [&](const std::string& name) {
    Json rows = sweep.settled_rows(name);
    for (Json& row : rows) {
      row.erase("message");
    }
    return rows;
  };
  REQUIRE(rows_without_paths("out") == rows_without_paths("whole"));
  REQUIRE_THAT(sweep.finish("out").out, Contains("4 runs, 0 to do"));

  require_refusal(start({"--only", "5"}), 2, "--only: must be 1 to 4");
  require_refusal(start({"--list", "--collect"}), 2, "exclude each other");
}

TEST_CASE("launch stands before the binary, with the number of ranks") {
  const SmallSweep sweep;
  sweep.write("out",
              {{"parallel.pipeline", {1, 2}}},
              {{"launch", {"sh", "-c", "echo launched {ranks}; exec \"$0\" \"$@\""}}});
  sweep.finish("out");
  REQUIRE_THAT(read_file(sweep.in_run("out", 0, "stdout.txt")), Catch::StartsWith("launched 1\n"));
  REQUIRE_THAT(read_file(sweep.in_run("out", 1, "stdout.txt")), Catch::StartsWith("launched 2\n"));
  // Nobody has started two ranks.
  REQUIRE(sweep.rows("out")[0]["status"] == "done");
  REQUIRE(sweep.rows("out")[1]["exit_code"] == 2);
}

TEST_CASE("a sweep that is wrong is refused with the point, before anything is made") {
  const SmallSweep sweep;
  const Json seeds = {{"run.seed", {1, 2}}};
  const auto refuse = [&](const Json& grid, const Json& more, const std::string& message) {
    INFO(message);
    sweep.write("out", grid, more);
    require_refusal(sweep.start("out"), 2, message);
    REQUIRE_THAT(sweep.start("out").error, Contains(sweep.file("out")));
    REQUIRE_FALSE(std::filesystem::exists(sweep.path("out")));
  };
  refuse(
      {{"optimizer.lrr", {0.1}}}, {}, "grid point optimizer.lrr=0.1: optimizer.lrr: unknown key");
  refuse({{"optimizer.lrr", {0.1}}}, {}, "nearest is optimizer.lr; got 0.1");
  refuse(
      {{"run.seed", {1, -1}}}, {}, "grid point run.seed=-1: run.seed: must be at least 0; got -1");
  refuse({{"parallel.tensor", {1, 3}}}, {}, "model.heads");
  refuse({{"data.train.7.path", {"x"}}}, {}, "\"7\" must be the number of a list element");
  refuse(Json::object(), {}, "grid: must vary at least one key");
  refuse({{"run.seed", Json::array()}}, {}, "grid.run.seed: must list at least one value; got []");
  refuse({{"run.dir", {"a"}}}, {}, "grid.run.dir: the sweep gives every run its run.dir");
  refuse({{"compress.policy", {"all"}}, {"compress.data_gradient.codec", {"cast"}}},
         {},
         "compress.data_gradient");
  refuse(nullptr, {}, "grid: must vary at least one key");
  refuse(seeds, {{"base", "none.json"}}, "base: none.json");
  refuse(seeds, {{"base", 3}}, "base: must name a config file, or be a config; got 3");
  refuse(seeds, {{"bas", 3}}, "bas: unknown key; nearest is base");
  refuse(seeds, {{"launch", {"no-such-program"}}}, "launch: must start with a program that exists");
  refuse(seeds, {{"launch", "mpirun"}}, "launch: expected a list of strings");
  require_refusal(run_slackline({"sweep", sweep.path("none.json")}), 2, "none.json");
}

TEST_CASE("the example sweep is valid") {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(SL_SOURCE_DIR);  // its paths are relative to it
  CHECK(read_sweep("configs/sweep_tiny.json").points.size() == 6);
  std::filesystem::current_path(before);
}

TEST_CASE("a sweep whose directory cannot be made is a file error") {
  const SmallSweep sweep;
  write_file_atomically(sweep.path("plain"), "x");
  sweep.write("out", {{"run.seed", {1}}}, {{"dir", sweep.path("plain/out")}});
  require_refusal(sweep.start("out"), 3, "plain/out");
}

}  // namespace slackline
