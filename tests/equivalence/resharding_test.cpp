// A state saved on one layout and loaded on another is the same logical state, bit for bit, and
// training goes on from it as if nothing had happened.

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/world.h"
#include "tests/equivalence/bounds.h"
#include "tests/equivalence/layouts.h"
#include "tests/equivalence/logical_state.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tools/run/run_checkpoints.h"
#include "tools/run/training_state.h"

namespace slackline::testing {

namespace {

constexpr int kStepsBefore = 2;
constexpr int kStepsAfter = 2;

// A model that every layout below can hold.
MeshRun run_on(const ParallelConfig& parallel, bool tied) {
  return {.model = {.layers = 8,
                    .hidden = 32,
                    .heads = 4,
                    .sequence = 8,
                    .vocab = 67,
                    .ffn = 96,
                    .tie_embeddings = tied},
          .parallel = parallel,
          .global_batch = 8,
          .micro_batch = 1};
}

DataStrategy strategy(const char* letters) {
  return *data_strategy_named(letters);
}

std::vector<ParallelConfig> layouts() {
  const DataStrategy zero1 = DataStrategy::zero1;
  return {
      {},
      {.tensor = 2},
      {.tensor = 4, .sequence_parallel = true},
      {.pipeline = 2},
      {.pipeline = 4, .stage_layers = {1, 3, 3, 1}},
      {.pipeline = 2, .schedule = ScheduleName::interleaved, .chunks = 2},
      {.data = 2},
      {.data = 4, .data_strategy = zero1},
      {.data = 3, .data_strategy = zero1},
      {.pipeline = 2, .data = 4, .group = 2, .data_strategy = zero1},
      {.tensor = 2, .pipeline = 2, .data = 2},
      {.tensor = 2, .pipeline = 2, .data = 2, .data_strategy = zero1},
      {.pipeline = 2, .data = 4, .data_strategy = zero1, .embedding_sync = EmbeddingSync::separate},
      {.tensor = 4, .pipeline = 2, .schedule = ScheduleName::zb_h1},
      {.tensor = 2, .data = 2, .sequence_parallel = true, .data_strategy = zero1},
      {.data = 3, .data_strategy = DataStrategy::zero3},
      {.pipeline = 2, .data = 4, .group = 2, .data_strategy = strategy("IIG")},
      {.tensor = 2, .data = 4, .group = 2, .data_strategy = strategy("NII")},
      {.pipeline = 2, .data = 2, .data_strategy = strategy("GNG")}};
}

// Three data ranks need a batch of their own; what is saved does not depend on it.
MeshRun run_of(const ParallelConfig& parallel, bool tied) {
  MeshRun run = run_on(parallel, tied);
  run.global_batch = parallel.data == 3 ? 9 : 8;
  return run;
}

// Losses of steps first + 1 to first + count.
std::vector<double> train(const MeshRun& run, MeshModel& model, int first, int count) {
  std::vector<double> losses;
  for (int step = first + 1; step <= first + count; ++step) {
    RankBatches batches(run, model, step);
    const StepFacts facts = model.make_gradients(batches.micro_batches());
    model.update(kLearningRate, facts.gradient_norm);
    losses.push_back(facts.loss);
  }
  return losses;
}

// Trains from initial values and saves below `directory`; the losses before and after.
std::vector<double> train_and_save(const MeshRun& run, const std::string& directory) {
  std::vector<double> losses;
  run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
    Groups groups(world, run.parallel, run.model.tie_embeddings);
    MeshModel model(run.options(), groups);
    RunCheckpoints checkpoints(directory, 1, world);
    checkpoints.prepare();
    model.initialize(kSeed);
    std::vector<double> own = train(run, model, 0, kStepsBefore);
    CheckpointContents contents{.step = kStepsBefore, .tensors = training_tensors(model)};
    contents.documents.model = model_config_json(run.model);
    checkpoints.save(contents);
    checkpoints.finish();
    for (const double loss : train(run, model, kStepsBefore, kStepsAfter)) {
      own.push_back(loss);
    }
    if (world.rank() == 0) {
      losses = std::move(own);
    }
  });
  return losses;
}

std::string checkpoint_below(const std::string& directory) {
  return directory + "/step-00000002";
}

void load(const std::string& directory, MeshModel& model) {
  TrainingStart start{.source = TrainingStart::Source::checkpoint,
                      .checkpoint = Checkpoint(checkpoint_below(directory)),
                      .step = kStepsBefore};
  load_training_state(start, model);
}

// Weights and moments by group and name, as the checkpoint has them.
LogicalTensors saved_state(const std::string& directory) {
  Checkpoint checkpoint(checkpoint_below(directory));
  LogicalTensors state;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    std::vector<float>& values = state[name];
    values.resize(tensor.shape.num_elements());
    checkpoint.read(name, Tensor(values.data(), DType::f32, tensor.shape));
  }
  return state;
}

void add_group(const std::string& group, const LogicalTensors& tensors, LogicalTensors& state) {
  for (const auto& [name, values] : tensors) {
    state.emplace(group + name, values);
  }
}

// The same of a layout that has loaded it; throws when copies of a weight differ.
LogicalTensors loaded_state(const MeshRun& run, const std::string& directory) {
  LogicalState weights(run.model);
  LogicalState first(run.model);
  LogicalState second(run.model);
  const LogicalTensors saved = saved_state(directory);
  LogicalTensors saved_weights;
  for (const ParameterSpec& spec : parameter_table(run.model)) {
    saved_weights.emplace(spec.name, saved.at("weights/" + spec.name));
  }
  run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
    Groups groups(world, run.parallel, run.model.tie_embeddings);
    MeshModel model(run.options(), groups);
    load(directory, model);
    SL_CHECK_EQ(model.optimizer().step_count(), kStepsBefore);
    for (std::size_t i = 0; i < model.pieces().size(); ++i) {
      const OptimizerPiece& piece = model.pieces()[i];
      const std::string& name = piece.parameter->spec.name;
      if (piece.saved) {
        weights.put(piece, model.optimizer().tensors()[i].weight);
        first.put(piece, model.optimizer().first_moment(name));
        second.put(piece, model.optimizer().second_moment(name));
      }
    }
    LogicalState::require_copies(saved_weights, model);
  });
  LogicalTensors state;
  add_group("weights/", weights.take(), state);
  add_group("adam_m/", first.take(), state);
  add_group("adam_v/", second.take(), state);
  return state;
}

std::vector<double> resumed_losses(const MeshRun& run, const std::string& directory) {
  std::vector<double> losses;
  run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
    Groups groups(world, run.parallel, run.model.tie_embeddings);
    MeshModel model(run.options(), groups);
    load(directory, model);
    std::vector<double> own = train(run, model, kStepsBefore, kStepsAfter);
    if (world.rank() == 0) {
      losses = std::move(own);
    }
  });
  return losses;
}

void require_resharding(const ParallelConfig& from, const std::vector<ParallelConfig>& to) {
  for (const bool tied : {true, false}) {
    const TemporaryDirectory directory;
    static_cast<void>(train_and_save(run_of(from, tied), directory.path()));
    const LogicalTensors saved = saved_state(directory.path());
    REQUIRE(saved.size() == 3 * parameter_table(run_of(from, tied).model).size());
    for (const ParallelConfig& other : to) {
      INFO("tied " << tied << ": to t" << other.tensor << " p" << other.pipeline << " d"
                   << other.data);
      const LogicalTensors loaded = loaded_state(run_of(other, tied), directory.path());
      CHECK(tensor_differences("state", loaded, saved) == "");
    }
  }
}

}  // namespace

TEST_CASE("a state saved on one layout is the same state on another") {
  const std::vector<ParallelConfig> all = layouts();
  require_resharding(all[10], {all[0], all[5], all[8], all[16]});
  require_resharding(all[16], {all[0], all[15], all[17], all[18]});
}

TEST_CASE("a state saved on any layout is the same state on every other", "[slow]") {
  REQUIRE(layouts().size() >= 12);
  for (const ParallelConfig& from : layouts()) {
    INFO("from t" << from.tensor << " p" << from.pipeline << " d" << from.data);
    require_resharding(from, layouts());
  }
}

TEST_CASE("a run resumed on another layout goes on with the losses of the run that went on") {
  const ParallelConfig from{.tensor = 2, .pipeline = 2, .data = 2};
  ParallelConfig same_sums = from;
  same_sums.pipeline = 1;
  same_sums.data_strategy = DataStrategy::zero1;
  const TemporaryDirectory directory;
  const std::vector<double> whole = train_and_save(run_on(from, true), directory.path());
  const std::vector<double> after(whole.begin() + kStepsBefore, whole.end());
  CHECK(resumed_losses(run_on(from, true), directory.path()) == after);
  CHECK(resumed_losses(run_on(same_sums, true), directory.path()) == after);
  for (const ParallelConfig& other : {ParallelConfig{},
                                      ParallelConfig{.pipeline = 4, .data = 2},
                                      ParallelConfig{.tensor = 4, .sequence_parallel = true}}) {
    const std::vector<double> resumed = resumed_losses(run_on(other, true), directory.path());
    for (std::size_t i = 0; i < after.size(); ++i) {
      CHECK(std::abs(resumed[i] / after[i] - 1.0) <= kFloatRounding.loss);
    }
  }
}

}  // namespace slackline::testing
