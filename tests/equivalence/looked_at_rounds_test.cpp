// What is seen of outer rounds while they go on: anchors, distances, and values that are not
// finite.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "compress/compress_config.h"
#include "tests/equivalence/distance.h"
#include "tests/equivalence/logical_state.h"
#include "tests/equivalence/outer_run.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

// A step that ends no round: weights and anchor change places also where they are the same.
constexpr std::int64_t kWithin = -1;

// Weights of the first worker, as evaluations in the middle of rounds see them.
std::vector<LogicalTensors> seen_anchors(const OuterRun& run, OuterResult& result) {
  const auto steps = static_cast<std::size_t>(run.mesh.steps);
  std::vector<std::unique_ptr<LogicalState>> states;
  for (std::size_t i = 0; i < steps; ++i) {
    states.push_back(std::make_unique<LogicalState>(run.mesh.model));
  }
  std::vector<std::size_t> at(static_cast<std::size_t>(run.mesh.parallel.num_ranks()), 0);
  result = run_outer(run, {.after_step = [&](MeshModel& model, OuterLoop& outer) {
                       std::size_t& step =
                           at[static_cast<std::size_t>(model.groups().everyone->rank())];
                       outer.exchange_anchor(kWithin);
                       model.finish_gather();
                       if (model.groups().worker_index() == 0) {
                         put_weights(model, *states[step]);
                       }
                       outer.exchange_anchor(kWithin);
                       ++step;
                     }});
  std::vector<LogicalTensors> seen;
  seen.reserve(states.size());
  for (const std::unique_ptr<LogicalState>& state : states) {
    seen.push_back(state->take());
  }
  return seen;
}

// Three rounds, of which the second one is spoiled in one element of a worker's weights.
OuterResult spoiled(const OuterRun& run) {
  const auto spoil = [](MeshModel& model, int step) {
    if (step == 4 && model.groups().worker_index() == 1 && model.groups().data->rank() == 0) {
      model.optimizer().tensors()[0].weight.span<float>()[0] =
          std::numeric_limits<float>::infinity();
    }
  };
  // A checkpoint's text is read as it was written, also after a round that was left out.
  const auto save = [](MeshModel&, OuterLoop& outer) {
    outer.settle();
    outer.gather_state();
    outer.load(outer.state_text({}));
  };
  OuterResult result = run_outer(run, {.after_update = spoil, .after_end = save});
  for (const LogicalTensors& anchor : result.anchors) {
    CHECK(tensor_differences("the anchor", anchor, result.anchors[0]) == "");
    for (const auto& [name, values] : anchor) {
      CHECK(std::ranges::all_of(values, [](float value) { return std::isfinite(value); }));
    }
  }
  return result;
}

}  // namespace

// Where owners keep the anchor it is gathered to be looked at, and the start that had come goes
// and comes again.
TEST_CASE("looking at the anchor in the middle of rounds changes no bit of them") {
  for (const int ranks : {1, 2}) {
    for (const char* eager : {"false", "true"}) {  // owners keep their part of it, or all do
      const OuterRun run = run_of(
          fmt::format(R"({{"method": "co2", "period": 2, "penalty": "gap", "eager": {}}})", eager),
          1,
          1,
          2 * ranks,
          ranks);
      INFO(eager << ", " << ranks);
      OuterResult looked;
      const std::vector<LogicalTensors> seen = seen_anchors(run, looked);
      const OuterResult alone = run_outer(run);
      CHECK(tensor_differences("the anchor", looked.anchors[1], alone.anchors[0]) == "");
      CHECK(looked.rounds.back().distance == alone.rounds.back().distance);
      // It moves with the second end, and the last one, and not between ends.
      CHECK(tensor_differences("the first anchor", seen[0], seen[2]) == "");
      CHECK(tensor_differences("the second anchor", seen[3], seen[4]) == "");
      CHECK(tensor_differences("another anchor", seen[2], seen[3]) != "");
      CHECK(tensor_differences("the last anchor", seen[5], alone.anchors[0]) == "");
    }
  }
}

TEST_CASE("a text of rounds has what each worker has done") {
  const OuterRun run = run_of(R"({"method": "co2", "period": 2})", 1, 1, 4, 2);
  const auto look = [](MeshModel& model, OuterLoop& outer) {
    const double own[] = {10.0 + model.groups().worker_index(), 0.5};
    const std::vector<double> all = outer.of_workers(own);
    outer.settle();
    outer.gather_state();
    if (model.groups().everyone->rank() > 0) {
      return;  // one thread looks at what came out
    }
    CHECK(all == std::vector<double>{10.0, 0.5, 11.0, 0.5});
    const WorkerProgress workers[] = {{.updates = 5, .skips = 1}, {.updates = 7, .skips = 0}};
    const std::string text = outer.state_text(workers);
    CHECK(OuterLoop::progress_of(text, 0)->updates == 5);
    CHECK(OuterLoop::progress_of(text, 0)->skips == 1);
    CHECK(OuterLoop::progress_of(text, 1)->updates == 7);
    CHECK_FALSE(OuterLoop::progress_of(text, 2).has_value());
  };
  CHECK(run_outer(run, {.after_end = look}).rounds.size() == 3);
}

TEST_CASE("right behind the end of a round the anchor is looked at without a message") {
  const OuterRun run = run_of(R"({"method": "co2", "period": 2})", 1, 2, 4, 2);
  const std::size_t alone = run_outer(run).outer_bytes;
  const auto bytes_of = [&](bool is_within) {
    return run_outer(run,
                     {.after_end =
                          [&](MeshModel&, OuterLoop& outer) {
                            for (int there_and_back = 0; there_and_back < 2; ++there_and_back) {
                              outer.exchange_anchor(is_within ? kWithin : outer.rounds().last_end);
                            }
                          }})
        .outer_bytes;
  };
  CHECK(bytes_of(false) == alone);
  CHECK(bytes_of(true) > alone);
}

// Owners make the start of a round on the way, and the step that led there at its end.
TEST_CASE("workers begin every round at the same place, where the anchor is") {
  for (const char* more : {R"("clip": 0.0005)", R"("penalty": "gap")", R"("momentum": 0.9)"}) {
    const OuterRun run =
        run_of(fmt::format(R"({{"method": "co2", "period": 2, {}}})", more), 1, 2, 4, 2);
    INFO(more);
    std::vector<std::unique_ptr<LogicalState>> states;
    states.reserve(12);
    for (int i = 0; i < 12; ++i) {
      states.push_back(std::make_unique<LogicalState>(run.mesh.model));
    }
    std::vector<std::size_t> at(static_cast<std::size_t>(run.mesh.parallel.num_ranks()), 0);
    static_cast<void>(run_outer(run, {.after_end = [&](MeshModel& model, OuterLoop& outer) {
                                  std::size_t& end =
                                      at[static_cast<std::size_t>(model.groups().everyone->rank())];
                                  const auto worker =
                                      static_cast<std::size_t>(model.groups().worker_index());
                                  model.finish_gather();
                                  put_weights(model, *states[4 * end + 2 * worker]);
                                  outer.exchange_anchor(kWithin);
                                  model.finish_gather();
                                  put_weights(model, *states[4 * end + 2 * worker + 1]);
                                  outer.exchange_anchor(kWithin);
                                  ++end;
                                }}));
    for (std::size_t end = 0; end < 3; ++end) {
      const LogicalTensors start = states[4 * end]->take();
      for (std::size_t i = 1; i < 4; ++i) {
        INFO("end " << end << ", " << i);
        CHECK(tensor_differences("the start", states[4 * end + i]->take(), start) == "");
      }
    }
  }
}

// What workers have learned apart from each other: of two, half the distance of their weights.
TEST_CASE("the distance of workers is that of their weights from the mean") {
  for (const char* eager : {"false", "true"}) {
    const OuterRun run =
        run_of(fmt::format(R"({{"method": "co2", "period": 2, "eager": {}}})", eager), 1, 1, 2, 1);
    std::vector<std::vector<LogicalTensors>> ends(2);  // of workers, before each end
    const OuterResult result = run_outer(
        run, {.before_end = [&](MeshModel& model, OuterLoop&) {
          LogicalState state(run.mesh.model);
          put_weights(model, state);
          ends[static_cast<std::size_t>(model.groups().worker_index())].push_back(state.take());
        }});
    double squares = 0.0;
    double elements = 0.0;
    for (const auto& [name, values] : ends[0].front()) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        squares += std::pow((double{values[i]} - ends[1].front().at(name)[i]) / 2.0, 2.0);
        elements += 1.0;
      }
    }
    INFO(eager);
    // The first round's, which the second end knows. Sums of squares of weights lose six digits of
    // it to the mean's, rounded to floats.
    CHECK(result.rounds[1].distance == Approx(std::sqrt(squares / elements)).epsilon(1e-3));
  }
}

// Every element of a first move is held by a bound that its smallest one passes, and none by one
// that its largest does not reach.
TEST_CASE("a round says how many elements its bound holds") {
  for (const auto& [clip, kind, last_share] : {std::tuple{1e-12, "element", 1.0},
                                               std::tuple{1e6, "element", 0.0},
                                               std::tuple{1e-12, "norm", 1.0},
                                               std::tuple{1e6, "norm", 0.0}}) {
    for (const int delay : {0, 1}) {
      const OuterRun run = run_of(
          fmt::format(
              R"({{"method": "co2", "period": 2, "clip": {}, "clip_kind": "{}", "delay": {}}})",
              clip,
              kind,
              delay),
          1,
          2,
          4,
          2);
      INFO(clip << " " << kind << " " << delay);
      const OuterResult result = run_outer(run);
      REQUIRE(result.rounds.size() == 3);
      REQUIRE(result.rounds.back().clipped.has_value());
      // Gradients of a few elements are zero: rows of tokens that no sample has.
      CHECK(*result.rounds.back().clipped <= last_share);
      CHECK(*result.rounds.back().clipped >= 0.9 * last_share);
      const double first_share = delay == 1 ? 0.0 : last_share;  // a late anchor has not moved yet
      CHECK(*result.rounds.front().clipped <= first_share);
      CHECK(*result.rounds.front().clipped >= 0.9 * first_share);
    }
  }
  const OuterResult plain = run_outer(run_of(R"({"method": "co2", "period": 2})", 1, 1, 2, 1));
  CHECK(!plain.rounds.back().clipped.has_value());
}

TEST_CASE("a round that is not finite is left out by all workers") {
  const std::vector<std::tuple<std::string, std::string>> forms = {
      {R"({"method": "co2", "period": 2})", ""},
      {R"({"method": "co2", "period": 2, "penalty": "gap"})", ""},
      {R"({"method": "co2", "period": 2, "eager": true})", R"({"codec": "top_k", "ratio": 0.1})"},
      {R"({"method": "diloco", "period": 2})", R"({"codec": "low_rank", "rank": 4})"},
      {R"({"method": "slowmo", "period": 2})", ""}};
  for (const auto& [outer, codec] : forms) {
    for (const int ranks : {1, 2}) {
      INFO(outer << ", " << ranks << " ranks a worker");
      OuterRun run = run_of(outer, 1, 1, 2 * ranks, ranks);
      if (!codec.empty()) {
        JsonReader section = JsonReader::parse(codec, "test");
        run.codec = read_round_setting(section);
      }
      const OuterResult result = spoiled(run);
      REQUIRE(result.rounds.size() == 3);
      CHECK(result.rounds[0].not_finite.empty());
      CHECK(result.rounds[1].not_finite == std::vector<int>{1});
      CHECK(result.rounds[2].not_finite.empty());
    }
  }
}

TEST_CASE("a last mean that is not finite leaves the anchor where it was") {
  for (const char* eager : {"false", "true"}) {
    OuterRun run = run_of(
        fmt::format(R"({{"method": "co2", "period": 2, "ending": "mean", "eager": {}}})", eager),
        1,
        1,
        2,
        1);
    run.mesh.steps = 4;  // the step that is spoiled
    INFO(eager);
    const OuterResult result = spoiled(run);
    REQUIRE(result.rounds.size() == 2);
    CHECK(result.rounds[1].not_finite == std::vector<int>{1});
    run.mesh.steps = 2;  // whose first end moves nothing; without a mean
    run.outer.ending = OuterEnding::drain;
    run.is_left_early = true;
    LogicalState initial(run.mesh.model);
    static_cast<void>(run_outer(run, {.after_end = [&](MeshModel& model, OuterLoop& outer) {
                                  outer.exchange_anchor(kWithin);
                                  model.finish_gather();
                                  if (model.groups().worker_index() == 0) {
                                    put_weights(model, initial);
                                  }
                                  outer.exchange_anchor(kWithin);
                                }}));
    CHECK(tensor_differences("the anchor", result.anchors[0], initial.take()) == "");
  }
}

TEST_CASE("a fragment that is not finite begins anew at its anchor") {
  const OuterResult result =
      spoiled(run_of(R"({"method": "diloco", "period": 4, "fragments": 2})", 1, 1, 2, 1));
  REQUIRE(result.rounds.size() == 3);  // the first parameter is of the fragment due at step 4
  CHECK(result.rounds[1].not_finite == std::vector<int>{1});
  CHECK(result.rounds[2].not_finite.empty());
}

}  // namespace slackline::testing
