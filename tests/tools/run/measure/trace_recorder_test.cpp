// Traces of steps that are made up here: those that are skipped, and outer rounds: what of a round
// stands where, and that a trace grows with the ends of rounds.

#include "tools/run/measure/trace_recorder.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/comm/world.h"
#include "core/file_io.h"
#include "parallel/predict/timeline/chrome_trace.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/plan/planned_job.h"

namespace slackline {

namespace {

// A step of a second, which begins when its number says.
AccountedStep step_of(std::int64_t step) {
  const auto begin = static_cast<double>(step);
  AccountedStep made{.record = {.step = step}};
  made.times.ops = {
      {.op = {.kind = schedule::OpKind::forward}, .begin = begin, .end = begin + 0.5}};
  made.times.norm_begin = made.times.norm_end = begin + 0.5;
  made.times.updated = true;
  made.times.update_begin = begin + 0.5;
  made.times.update_end = begin + 1.0;
  return made;
}

AccountedStep end_of_round(std::int64_t step, const RoundTravels& rounds) {
  AccountedStep made = step_of(step);
  made.record.round.emplace();
  made.rounds = rounds;
  if (rounds.end_began == 0.0) {  // an end that takes no time
    made.rounds.end_began = made.rounds.end_ended = made.times.update_end;
  }
  return made;
}

// Bars of rounds by track, in the order of the file, each as name, start and duration in
// milliseconds.
using Bars =
    std::map<std::string, std::vector<std::tuple<std::string, std::int64_t, std::int64_t>>>;

Bars round_bars(const std::string& path) {
  Bars bars;
  for (const schedule::TraceBar& bar : schedule::read_trace(path)) {
    if (bar.track.find("outer rounds") != std::string::npos) {
      bars[bar.track].emplace_back(bar.name,
                                   std::lround(1000.0 * bar.start.value),
                                   std::lround(1000.0 * bar.duration.value));
    }
  }
  return bars;
}

Bars without_ends(Bars bars) {
  bars.erase("ends of outer rounds");
  return bars;
}

// Calls `act` with a recorder that traces steps 2 and 3, and the path of its file.
template <typename Act>
void with_recorder(const Act& act) {
  const TemporaryDirectory directory;
  TrainConfig config = planned_config({"batch.micro=1"});
  config.trace = true;
  config.outer.method = OuterMethod::co2;
  config.run.steps = 100;
  run_local_ranks(1, {}, [&](Communicator& world) {
    Groups groups(world, config.mesh_job().parallel, config.model.tie_embeddings);
    RunDirectory run(directory.path());
    TraceRecorder recorder(config, 1, {}, groups, run);
    act(recorder, directory.file("trace.json"));
  });
}

}  // namespace

TEST_CASE("a skipped step ends with its norm, and has no update") {
  with_recorder([](TraceRecorder& recorder, const std::string& path) {
    AccountedStep skipped = step_of(3);
    skipped.times.norm_end += 0.25;
    skipped.times.updated = false;
    // Its times of the update are those of the step before.
    skipped.times.update_begin = 2.5;
    skipped.times.update_end = 3.0;
    recorder.add(step_of(2));
    recorder.add(skipped);
    using Bar = std::tuple<std::string, std::int64_t, std::int64_t>;
    std::vector<Bar> bars;
    for (const schedule::TraceBar& bar : schedule::read_trace(path)) {
      if (bar.track == "step" || bar.name == "optimizer") {
        bars.emplace_back(bar.name,
                          std::lround(1000.0 * bar.start.value),
                          std::lround(1000.0 * bar.duration.value));
      }
    }
    std::ranges::sort(bars);
    CHECK(bars ==
          std::vector<Bar>{{"optimizer", 500, 500}, {"step 2", 0, 1000}, {"step 3", 1000, 750}});
  });
}

TEST_CASE("a trace shows the round that travels, and with the next end when it arrived") {
  with_recorder([](TraceRecorder& recorder, const std::string& path) {
    RoundTravel round{.step = 2, .sent = 3.0};
    recorder.add(step_of(1));
    recorder.add(end_of_round(2, {.under_way = round, .end_began = 3.0, .end_ended = 3.5}));
    CHECK_FALSE(path_exists(path));
    recorder.add(step_of(3));
    // Times count from step 2, the first one that is traced.
    CHECK(round_bars(path) ==
          Bars{{"ends of outer rounds", {{"end with step 2", 1000, 500}}},
               {"outer rounds", {{"round sent with step 2, still under way", 1000, 1000}}}});
    const std::size_t bars = schedule::read_trace(path).size();
    recorder.add(step_of(4));
    CHECK(schedule::read_trace(path).size() == bars);
    round.arrived = 5.75;
    round.needed = 5.0;
    round.waited = 0.75;
    recorder.add(end_of_round(5,
                              {.arrived = {round},
                               .under_way = RoundTravel{.step = 5, .sent = 6.0},
                               .end_began = 5.0,
                               .end_ended = 6.25}));
    CHECK(round_bars(path) ==
          Bars{{"ends of outer rounds",
                {{"end with step 2", 1000, 500}, {"end with step 5", 3000, 1250}}},
               {"outer rounds", {{"round sent with step 2", 1000, 2750}}},
               {"steps beside outer rounds", {{"steps 3 to 5", 1000, 2000}}},
               {"waiting for outer rounds", {{"round sent with step 2", 3000, 750}}}});
    CHECK(schedule::read_trace(path).size() == bars + 3);  // and nothing else has changed
  });
}

TEST_CASE("a trace begins with a round that was sent before its steps") {
  with_recorder([](TraceRecorder& recorder, const std::string& path) {
    recorder.add(end_of_round(1, {.under_way = RoundTravel{.step = 1, .sent = 1.5}}));
    recorder.add(end_of_round(
        2,
        {.arrived = {{.step = 1, .sent = 1.5, .needed = 2.75, .arrived = 2.5}}, .under_way = {}}));
    recorder.add(step_of(3));
    CHECK(without_ends(round_bars(path)) ==
          Bars{{"outer rounds", {{"round sent with step 1", 0, 1000}}},
               {"steps beside outer rounds", {{"steps 2 to 2", 0, 1250}}}});
  });
}

TEST_CASE("fragments have tracks of their own, and only where a rank has a share of them") {
  with_recorder([](TraceRecorder& recorder, const std::string& path) {
    recorder.add(step_of(2));
    recorder.add(step_of(3));
    recorder.add(end_of_round(
        4, {.arrived = {{.step = 3, .fragment = 2, .sent = 4.0, .needed = 5.0, .arrived = 4.5}}}));
    recorder.add(end_of_round(5,
                              {.arrived = {{.step = 4,
                                            .fragment = 3,
                                            .takes_part = false,
                                            .sent = 5.0,
                                            .needed = 6.0,
                                            .arrived = 5.0}}}));
    CHECK(without_ends(round_bars(path)) ==
          Bars{{"outer rounds, fragment 2", {{"round sent with step 3", 2000, 500}}},
               {"steps beside outer rounds", {{"steps 4 to 4", 2000, 1000}}}});
  });
}

TEST_CASE("a trace has the rounds of the first eight ends") {
  with_recorder([](TraceRecorder& recorder, const std::string& path) {
    recorder.add(step_of(2));
    for (std::int64_t step = 3; step < 20; ++step) {
      const auto now = static_cast<double>(step);
      recorder.add(end_of_round(
          step,
          {.arrived = {
               {.step = step - 1, .sent = now, .needed = now + 1.0, .arrived = now + 0.5}}}));
    }
    CHECK(round_bars(path).at("outer rounds").size() == 8);
    CHECK(round_bars(path).at("ends of outer rounds").size() == 8);
  });
}

}  // namespace slackline
