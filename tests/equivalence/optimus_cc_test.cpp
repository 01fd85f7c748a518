// Two steps of training under policy optimus_cc, over pipeline and data ranks, against an oracle
// that knows the policy's rules by heart (optimus_cc_oracle.h).

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/world.h"
#include "tests/equivalence/logical_state.h"
#include "tests/equivalence/mesh_run.h"
#include "tests/equivalence/optimus_cc_oracle.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

constexpr int kRank = 2;
constexpr int kSteps = 2;

// Four stages of one layer, two data ranks, five micro-batches.
MeshRun job(bool epilogue_only, std::optional<int> stages) {
  MeshRun run{.model = {.layers = 4,
                        .hidden = 16,
                        .heads = 2,
                        .sequence = 8,
                        .vocab = 37,
                        .ffn = 40,
                        .dropout = 0.0F}};
  run.parallel.pipeline = 4;
  run.parallel.data = 2;
  run.parallel.stage_layers = {1, 1, 1, 1};
  run.global_batch = run.micro_batch * run.parallel.data * 5;
  run.compress.policy = CompressionPolicy::optimus_cc;
  run.compress.epilogue_only = epilogue_only;
  run.compress.stages = stages;
  // The policy's codecs, at a rank that loses something of matrices as small as these.
  run.compress.sites["pipeline_backward"] = {
      .error_feedback = ErrorFeedback::lazy, .always = true, .rank = kRank};
  run.compress.sites["data_gradient"] = {
      .error_feedback = ErrorFeedback::immediate, .always = true, .rank = kRank};
  return run;
}

// The gradients of each step, with weights that stay as they are: nothing but what codecs keep goes
// from one step to the next.
std::vector<LogicalTensors> trained(const MeshRun& run) {
  std::deque<LogicalState> steps;
  for (int step = 1; step <= kSteps; ++step) {
    steps.emplace_back(run.model);
  }
  run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
    Groups groups(world, run.parallel, run.model.tie_embeddings);
    MeshModel model(run.options(), groups);
    model.initialize(kSeed);
    for (int step = 1; step <= kSteps; ++step) {
      RankBatches batches(run, model.groups().data->rank(), step);
      const StepFacts facts = model.make_gradients(batches.micro_batches());
      for (std::size_t i = 0; i < model.pieces().size(); ++i) {
        if (model.pieces()[i].counted) {
          steps[static_cast<std::size_t>(step - 1)].put(model.pieces()[i],
                                                        model.optimizer().tensors()[i].gradient);
        }
      }
      model.update(0.0, facts.gradient_norm);
    }
  });
  std::vector<LogicalTensors> gradients;
  gradients.reserve(steps.size());
  for (LogicalState& step : steps) {
    gradients.push_back(step.take());
  }
  return gradients;
}

// The largest |a - b| / |b| of any tensor, in the Euclidean norm.
double distance(const LogicalTensors& actual,
                const std::map<std::string, std::vector<double>>& expected) {
  REQUIRE(actual.size() == expected.size());
  double largest = 0.0;
  for (const auto& [name, values] : expected) {
    const std::vector<float>& found = actual.at(name);
    REQUIRE(found.size() == values.size());
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference += (found[i] - values[i]) * (found[i] - values[i]);
      norm += values[i] * values[i];
    }
    largest = std::max(largest, std::sqrt(difference / norm));
  }
  return largest;
}

// The distance of each step from the oracle's.
std::vector<double> distances(const std::vector<LogicalTensors>& found,
                              const MeshRun& run,
                              const OptimusCcRules& rules) {
  OptimusCcOracle oracle(run, rules);
  std::vector<double> all;
  for (int step = 1; step <= kSteps; ++step) {
    all.push_back(distance(found[static_cast<std::size_t>(step - 1)], oracle.gradients(step)));
  }
  return all;
}

// Products in fp32, some of which lose digits before they are made orthonormal.
constexpr double kRounding = 1e-5;
// What any wrong rule does to the gradients.
constexpr double kWrong = 1e-2;

}  // namespace

TEST_CASE("optimus_cc compresses the epilogue lazily and the first stages' gradients") {
  const MeshRun run = job(true, std::nullopt);
  const std::vector<LogicalTensors> found = trained(run);
  // Three quarters of four stages, by default.
  const OptimusCcRules rules{.rank = kRank, .stages = 3};
  for (const double off : distances(found, run, rules)) {
    CHECK(off < kRounding);
  }

  // The same with one rule broken is seen, so that agreement says something.
  OptimusCcRules all_messages = rules;
  all_messages.epilogue_only = false;
  CHECK(distances(found, run, all_messages).front() > kWrong);
  OptimusCcRules fewer = rules;
  fewer.stages = 2;
  CHECK(distances(found, run, fewer).front() > kWrong);
  OptimusCcRules forgetful = rules;
  forgetful.forgets_between_steps = true;
  const std::vector<double> off = distances(found, run, forgetful);
  CHECK(off.front() < kRounding);
  CHECK(off.back() > kWrong);
}

TEST_CASE("optimus_cc without epilogue_only compresses every message, each with what it owes") {
  const MeshRun run = job(false, 1);
  const std::vector<LogicalTensors> found = trained(run);
  for (const double off :
       distances(found, run, {.rank = kRank, .epilogue_only = false, .stages = 1})) {
    CHECK(off < kRounding);
  }
}

}  // namespace slackline::testing
