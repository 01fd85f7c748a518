// What outer rounds keep from step to step goes on in numbers, whatever changes at a resume.

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/support/run_process.h"
#include "tests/tools/run/outer_runs.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

using testing::require_done;

namespace {

// The values of a tensor, which all workers share.
std::vector<float> values_of(Checkpoint& checkpoint, const std::string& name) {
  const Shape& shape = checkpoint.tensors().at(name).shape;
  std::vector<float> values(shape.num_elements());
  checkpoint.read(name, Tensor(std::span(values)).reshaped(shape), std::nullopt);
  return values;
}

// Returns the table's.
std::vector<float> momentum_of(const std::string& checkpoint) {
  Checkpoint opened(checkpoint);
  return values_of(opened, "outer/momentum/wte.weight");
}

// The largest difference of two checkpoints' weights.
double distance_of_weights(const std::string& a, const std::string& b) {
  Checkpoint first(a);
  Checkpoint second(b);
  double largest = 0.0;
  for (const auto& [name, tensor] : first.tensors()) {
    if (name.starts_with("weights/")) {
      const std::vector<float> values = values_of(first, name);
      const std::vector<float> others = values_of(second, name);
      for (std::size_t i = 0; i < values.size(); ++i) {
        largest = std::max(largest, std::abs(double{values[i]} - others[i]));
      }
    }
  }
  return largest;
}

void require_scaled(const std::vector<float>& values,
                    const std::vector<float>& scaled,
                    double factor) {
  REQUIRE(values.size() == scaled.size());
  double largest = 0.0;
  double error = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::abs(factor * values[i]));
    error = std::max(error, std::abs(factor * values[i] - scaled[i]));
  }
  CHECK(largest > 0.0);
  CHECK(error <= 1e-6 * largest);  // one rounding, of a rate that has one
}

}  // namespace

TEST_CASE("rounds give the same losses behind a change of a worker's layout") {
  const TrainingRun run;
  const std::string outer = R"({"method": "co2", "period": 3, "eager": true, "momentum": 0.5})";
  require_trained(run, 4, workers(outer, {"parallel.tensor=2", "run.dir=" + run.path("first")}));
  const std::vector<double> whole = run.metric("loss", "first");
  for (const std::string layout : {"parallel.pipeline=2", "parallel.tensor=1"}) {
    INFO(layout);
    std::filesystem::remove_all(run.path("next"));
    require_trained(run,
                    layout == "parallel.tensor=1" ? 2 : 4,
                    workers(outer,
                            {layout,
                             "checkpoint.resume_from=" + run.checkpoint(5, "first"),
                             "run.dir=" + run.path("next")}));
    const std::vector<double> rest = run.metric("loss", "next");
    REQUIRE(rest.size() == 7);
    for (std::size_t i = 0; i < rest.size(); ++i) {
      CHECK(rest[i] == Approx(whole[i + 5]).epsilon(1e-4));  // sums of other lengths
    }
  }
}

TEST_CASE("inspect counts the moments of every worker, and weights once") {
  const TrainingRun run;
  require_trained(run, 2, workers(R"({"method": "co2", "period": 3})", {}));
  const std::string text = require_done(run_slackline({"inspect", run.checkpoint(5)})).out;
  const auto sizes_of = [&](const std::string& group) {
    std::istringstream row(text.substr(text.find("\n" + group + " ") + 1 + group.size()));
    std::array<std::size_t, 3> sizes{};  // tensors, elements, bytes
    row >> sizes[0] >> sizes[1] >> sizes[2];
    INFO(group);
    REQUIRE_FALSE(row.fail());
    return sizes;
  };
  const std::array<std::size_t, 3> weights = sizes_of("weights");
  CHECK(weights[2] == weights[1] * sizeof(float));
  for (const char* moments : {"adam_m", "adam_v"}) {
    INFO(moments);
    CHECK(sizes_of(moments) == std::array{weights[0], 2 * weights[1], 2 * weights[2]});
  }
}

// A round that has arrived moves the anchor at the next end, and at once where other numbers of
// workers go on; their steps at no rate leave it there.
TEST_CASE("other numbers of workers make the step that the run itself would have made") {
  const TrainingRun run;
  for (const char* more : {R"("nesterov": true, "clip": 0.05, "clip_kind": "norm")",
                           R"("clip": 0.05, "clip_kind": "norm")",
                           R"("penalty": "gap_per_tensor")",
                           R"("penalty": "gap_per_tensor", "clip": 0.05, "clip_kind": "norm")"}) {
    INFO(more);
    const std::string outer =
        R"({"method": "co2", "period": 3, "momentum": 0.5, )" + std::string(more) + "}";
    std::filesystem::remove_all(run.path("whole"));
    require_trained(run, 2, workers(outer, {"run.dir=" + run.path("whole"), "run.save_every=1"}));
    const double moved =
        distance_of_weights(run.checkpoint(8, "whole"), run.checkpoint(9, "whole"));
    REQUIRE(moved > 1e-4);
    for (const int ranks : {1, 4}) {
      INFO(ranks);
      std::vector<std::string> settings = {"parallel.data=" + std::to_string(ranks),
                                           "optimizer.lr=0",
                                           "run.save_every=9",
                                           "run.dir=" + run.path("next"),
                                           "checkpoint.resume_from=" + run.checkpoint(8, "whole")};
      if (ranks == 1) {
        settings.emplace_back("outer.method=none");
      }
      std::filesystem::remove_all(run.path("next"));
      require_trained(run, ranks, workers(outer, settings));
      // The norm adds up in another order, which may round a weight near 1 elsewhere.
      CHECK(distance_of_weights(run.checkpoint(9, "next"), run.checkpoint(9, "whole")) <= 1e-6);
    }
  }
}

// SlowMo counts its momentum in steps of the inner rate, the others in parameters'.
TEST_CASE("another method goes on with the momentum in its own units") {
  const TrainingRun run;
  const auto settings = [&](const std::string& method, const std::string& name) {
    return workers(R"({"method": ")" + method + R"(", "period": 3, "delay": 0})",
                   {"run.dir=" + run.path(name), "optimizer.schedule=constant"});
  };
  constexpr double kRate = 1e-3;
  require_trained(run, 2, settings("slowmo", "slowmo"));
  const std::string from = "checkpoint.resume_from=" + run.checkpoint(10, "slowmo");
  const std::vector<float> own = momentum_of(run.checkpoint(10, "slowmo"));
  for (const char* method : {"co2", "diloco"}) {
    INFO(method);
    // No round ends in between.
    require_trained(run, 2, with(settings(method, method), {from, "run.save_every=11"}));
    require_scaled(own, momentum_of(run.checkpoint(11, method)), kRate);
  }
  require_trained(run,
                  2,
                  with(settings("slowmo", "back"),
                       {"checkpoint.resume_from=" + run.checkpoint(12, "co2"),
                        "run.steps=15",
                        "run.save_every=13"}));
  require_scaled(
      momentum_of(run.checkpoint(12, "co2")), momentum_of(run.checkpoint(13, "back")), 1.0 / kRate);
}

}  // namespace slackline
