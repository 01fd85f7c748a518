// Steps that are skipped: they count neither for AdamW nor for good.

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/checkpoint/checkpoint.h"
#include "core/comm/forwarding_communicator.h"
#include "core/comm/world.h"
#include "core/file_io.h"
#include "optim/learning_rate.h"
#include "tests/reference/adamw_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/ended.h"
#include "tests/support/unowned.h"
#include "tests/tools/run/training_run.h"
#include "tools/run/trainer.h"

namespace slackline::testing {

namespace {

using Json = nlohmann::json;

// A world in which the sums that ranks agree on are not finite in some steps.
class BlindedCommunicator final : public ForwardingCommunicator {
 public:
  BlindedCommunicator(Communicator& real, std::set<int> steps)
      : ForwardingCommunicator(unowned(real)), steps_(std::move(steps)) {}

  [[nodiscard]] Transfer submit(Operation operation) override {
    if (std::string(operation.note.what) == "agreement on the step" &&
        steps_.contains(++agreements_)) {
      const std::span<double> numbers = operation.data.span<double>();
      numbers[numbers.size() - 2] = std::numeric_limits<double>::quiet_NaN();  // the loss
    }
    return real().submit(std::move(operation));
  }

 private:
  std::set<int> steps_;
  int agreements_ = 0;
};

// Runs the config in this process; the agreements of these numbers, from 1, are not finite.
ExitCode train_blinded(const TrainingRun& run,
                       const std::vector<std::string>& assignments,
                       const std::set<int>& agreements,
                       bool resume = false) {
  JsonReader document = JsonReader::parse(read_file(run.path("config.json")), "config");
  for (const std::string& assignment : assignments) {
    document.set(assignment);
  }
  const TrainConfig config = read_train_config(document);
  ExitCode code = ExitCode::bug;
  run_local_ranks(1, {}, [&](Communicator& world) {
    BlindedCommunicator blinded(world, agreements);
    Groups groups(blinded, config.parallel, config.model.tie_embeddings);
    Trainer trainer(config, {.resume = resume, .resolved_config = "{}"}, groups);
    code = trainer.run();
  });
  return code;
}

const std::vector<std::string> kSkips = {"run.on_nonfinite=skip",
                                         "run.steps=8",
                                         "run.save_every=1",
                                         "run.keep=10",
                                         "run.eval_every=0",
                                         "model.dropout=0",
                                         "optimizer.clip_norm=0"};

const OptimizerConfig kOptimizer{.lr = 1e-2, .warmup_steps = 2};  // the training run's

std::vector<double> values_of(const std::string& checkpoint, const std::string& name) {
  Checkpoint stored(checkpoint);
  const Shape& shape = stored.tensors().at(name).shape;
  std::vector<float> values(shape.num_elements());
  stored.read(name, Tensor(std::span(values)).reshaped(shape));
  return {values.begin(), values.end()};
}

Json manifest_of(const std::string& checkpoint) {
  return Json::parse(read_file(checkpoint + "/manifest.json"));
}

// The weight of a tensor as AdamW in double has it after the updates of `steps`, whose gradients
// follow from the first moments in the checkpoints behind them.
std::vector<double> expected_weight(const TrainingRun& run,
                                    const std::string& tensor,
                                    const std::vector<int>& steps) {
  const OptimizerConfig& config = kOptimizer;
  reference::AdamwState state;
  for (std::size_t update = 1; update <= steps.size(); ++update) {
    const int step = steps[update - 1];
    std::vector<double> moment = values_of(run.checkpoint(step), "adam_m/" + tensor);
    if (update == 1) {
      // Step 1 is where the oracle begins: both moments were zero before it.
      state = {values_of(run.checkpoint(1), "weights/" + tensor),
               moment,
               values_of(run.checkpoint(1), "adam_v/" + tensor)};
      continue;
    }
    for (std::size_t i = 0; i < moment.size(); ++i) {
      moment[i] = (moment[i] - config.beta1 * state.m[i]) / (1.0 - config.beta1);
    }
    state.update(moment,
                 {.lr = learning_rate(config, step, 8),
                  .beta1 = config.beta1,
                  .beta2 = config.beta2,
                  .eps = config.eps,
                  .weight_decay = config.weight_decay,
                  .step = static_cast<std::int64_t>(update)});
  }
  return state.weight;
}

// A thousandth of a step of the learning rate, and fp32 rounding of weights below 1. A skip that
// counted would change the corrections of the next update by some 20 %.
constexpr Tolerance kTolerance{.relative = 1e-6, .absolute = 1e-5};

}  // namespace

TEST_CASE("after three skips AdamW's weights are those of float64, which counts updates alone") {
  const TrainingRun run;
  REQUIRE(train_blinded(run, kSkips, {2, 3, 4}) == ExitCode::done);
  for (const std::string name : {"h.0.attn.c_attn.weight", "h.1.mlp.c_proj.weight"}) {
    INFO(name);
    const std::string weight = "weights/" + name;
    CHECK(values_of(run.checkpoint(4), weight) == values_of(run.checkpoint(1), weight));
    CHECK(worst_mismatch(values_of(run.checkpoint(8), weight),
                         expected_weight(run, name, {1, 5, 6, 7, 8}),
                         kTolerance) == "");
  }
  const std::vector<double> rates = run.metric("lr");
  REQUIRE(rates.size() == 8);
  for (int step = 1; step <= 8; ++step) {  // the rate follows the step
    CHECK(rates[static_cast<std::size_t>(step - 1)] ==
          Approx(learning_rate(kOptimizer, step, 8)).epsilon(1e-5));
  }
}

TEST_CASE("a checkpoint counts updates, and a resume goes on with them, bit for bit") {
  const TrainingRun run;
  REQUIRE(train_blinded(run, kSkips, {2, 3, 4}) == ExitCode::done);
  CHECK(manifest_of(run.checkpoint(3))["updates"] == 1);
  CHECK(manifest_of(run.checkpoint(3))["skips"] == 2);
  CHECK(manifest_of(run.checkpoint(8))["updates"] == 5);
  CHECK(!manifest_of(run.checkpoint(8)).contains("skips"));
  CHECK(manifest_of(run.checkpoint(8))["data"]["consumed_sequences"] == 64);
  for (const int from : {3, 5}) {
    std::vector<std::string> rest = kSkips;
    rest.push_back("run.dir=" + run.path(fmt::format("from{}", from)));
    rest.push_back("checkpoint.resume_from=" + run.checkpoint(from));
    const std::set<int> agreements = from == 3 ? std::set<int>{1} : std::set<int>{};
    REQUIRE(train_blinded(run, rest, agreements) == ExitCode::done);
    CHECK(run.weights_sha256(run.checkpoint(8, fmt::format("from{}", from))) ==
          run.weights_sha256(run.checkpoint(8)));
  }
}

TEST_CASE("a checkpoint that does not count updates has made one in every step") {
  const TrainingRun run;
  const std::vector<std::string> job = {"optimizer.schedule=constant"};
  const std::vector<std::string> part = with(job, {"run.dir=" + run.path("part")});
  REQUIRE(run.train(with(job, {"run.steps=6"})).exit_code == 0);
  REQUIRE(run.train(with(part, {"run.steps=3"})).exit_code == 0);
  const std::string manifest = run.checkpoint(3, "part") + "/manifest.json";
  Json older = manifest_of(run.checkpoint(3, "part"));
  REQUIRE(older["updates"] == 3);
  older.erase("updates");
  older.erase("xxh3");
  write_file_atomically(manifest, older.dump());
  REQUIRE(run.train(with(part, {"run.steps=6"}), {"--resume"}).exit_code == 0);
  CHECK(run.metric("loss", "part") == run.metric("loss"));
}

TEST_CASE("a model that is not finite for good ends with 5 after run.max_skips steps in a row") {
  const TrainingRun run;
  const std::vector<std::string> explode = {"optimizer.lr=1e30",
                                            "optimizer.clip_norm=0",
                                            "optimizer.warmup_steps=0",
                                            "run.on_nonfinite=skip",
                                            "run.eval_every=0",
                                            "run.save_every=0"};
  const auto in = [&](const std::string& name, const std::vector<std::string>& more) {
    return with(with(explode, {"run.dir=" + run.path(name)}), more);
  };
  const ProcessResult ten = run.train(in("ten", {"run.steps=30"}));
  CHECK(ten.exit_code == 5);
  CHECK_THAT(ten.error,
             Catch::Contains("step 11") && Catch::Contains("10 steps in a row") &&
                 Catch::Contains("run.max_skips"));
  CHECK(run.metric("lr", "ten").size() == 11);
  CHECK_FALSE(std::filesystem::exists(run.checkpoint(11, "ten")));

  CHECK(run.train(in("three", {"run.steps=30", "run.max_skips=3"})).exit_code == 5);
  CHECK(run.metric("lr", "three").size() == 4);

  // The count is saved: three skips before the checkpoint, two after it.
  REQUIRE(run.train(in("part", {"run.steps=4", "run.max_skips=5"})).exit_code == 0);
  const ProcessResult rest =
      run.train(in("part", {"run.steps=30", "run.max_skips=5"}), {"--resume"});
  CHECK(rest.exit_code == 5);
  CHECK(run.metric("lr", "part").size() == 6);
  CHECK(std::filesystem::exists(run.checkpoint(4, "part")));
  CHECK_FALSE(std::filesystem::exists(run.checkpoint(6, "part")));
}

TEST_CASE("a checkpoint that is being written when a step is not finite is kept") {
  const TrainingRun run;
  require_refusal(run.train({"optimizer.lr=1e30",
                             "optimizer.clip_norm=0",
                             "optimizer.warmup_steps=0",
                             "run.steps=30",
                             "run.eval_every=0",
                             "run.save_every=1"}),
                  5,
                  "step 2: stopped before the update");
  CHECK(std::filesystem::exists(run.checkpoint(1)));
}

TEST_CASE("skips that an update parts are not in a row") {
  const TrainingRun run;
  const std::vector<std::string> job = with(kSkips, {"run.max_skips=2"});
  CHECK(train_blinded(run, job, {2, 4, 6}) == ExitCode::done);
  const std::vector<std::string> other =
      with(job, {"run.dir=" + run.path("other"), "run.save_every=0"});
  CHECK_THROWS_WITH(train_blinded(run, other, {2, 4, 5}), Catch::Contains("step 5"));
  CHECK_FALSE(std::filesystem::exists(run.path("other") + "/checkpoints/step-00000005"));
}

}  // namespace slackline::testing
