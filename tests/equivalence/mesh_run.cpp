#include "tests/equivalence/mesh_run.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/check.h"
#include "core/comm/world.h"
#include "core/rng.h"
#include "parallel/choose/compression_policy.h"
#include "tests/equivalence/logical_state.h"

namespace slackline::testing {

namespace {

constexpr double kHangSeconds = 60.0;  // a step takes milliseconds, also on a loaded machine

std::int32_t token_of(const ModelConfig& model, std::uint64_t sample, std::int64_t i) {
  static const PhiloxKey kTokens = philox_key(kSeed, "tokens");
  const std::uint64_t index =
      sample * static_cast<std::uint64_t>(model.sequence + 1) + static_cast<std::uint64_t>(i);
  return static_cast<std::int32_t>(uniform_number(kTokens, index) * model.vocab);
}

// What all ranks of a run write into; each its own place.
struct Shared {
  explicit Shared(const MeshRun& run)
      : gradients(run.model, LogicalState::Of::trained),
        weights(run.model),
        facts(static_cast<std::size_t>(run.parallel.num_ranks())) {}

  LogicalState gradients;
  LogicalState weights;
  std::vector<std::vector<StepFacts>> facts;  // of each rank: of its steps, then of evaluation
  LogicalTensors final_weights{};             // by rank 0, between two barriers
};

void put_gradients(LogicalState& state, MeshModel& model) {
  for (std::size_t i = 0; i < model.pieces().size(); ++i) {
    if (model.pieces()[i].counted) {
      state.put(model.pieces()[i], model.optimizer().tensors()[i].gradient);
    }
  }
}

void put_weights(LogicalState& state, MeshModel& model) {
  for (std::size_t i = 0; i < model.pieces().size(); ++i) {
    if (model.pieces()[i].saved) {
      state.put(model.pieces()[i], model.optimizer().tensors()[i].weight);
    }
  }
}

void run_rank(const MeshRun& run,
              const Interference& interference,
              Communicator& world,
              Shared& shared) {
  Groups groups(world, run.parallel, run.model.tie_embeddings);
  MeshModel model(run.options(), groups);
  model.initialize(kSeed);
  for (int step = 1; step <= run.steps; ++step) {
    RankBatches batches(run, model, step);
    if (interference.batches) {
      interference.batches(model, batches.micro_batches());
    }
    StepFacts facts = model.make_gradients(batches.micro_batches());
    if (interference.norm) {
      facts.gradient_norm = interference.norm(model, facts.gradient_norm);
    }
    shared.facts[static_cast<std::size_t>(world.rank())].push_back(facts);
    if (step == 1) {
      put_gradients(shared.gradients, model);
    }
    model.update(kLearningRate, facts.gradient_norm);
  }
  RankBatches first(run, model, 1);
  shared.facts[static_cast<std::size_t>(world.rank())].push_back(
      model.evaluate(first.micro_batches()));
  model.finish_gather();
  put_weights(shared.weights, model);
  world.barrier({.what = "all weights are put"}).wait();
  if (world.rank() == 0) {
    shared.final_weights = shared.weights.take();
  }
  world.barrier({.what = "all weights are taken"}).wait();
  LogicalState::require_copies(shared.final_weights, model);
}

}  // namespace

MeshModel::Options MeshRun::options() const {
  OptimizerConfig optimizer;
  optimizer.decay_embeddings = true;
  const MeshJob job{
      .model = model,
      .parallel = parallel.of_worker(),
      .precision = precision,
      .micro_batch = {.B = micro_batch, .T = model.sequence},
      .num_micro_batches = static_cast<int>(global_batch / (micro_batch * parallel.data))};
  return {.job = job,
          .optimizer = optimizer,
          .seed = kSeed,
          .compression = make_compression_plans(compress, job),
          .makers = makers};
}

RankBatches::RankBatches(const MeshRun& run, int data_rank, int step) {
  const std::int64_t B = run.micro_batch;
  const std::int64_t T = run.model.sequence;
  const int count = run.options().job.num_micro_batches;
  const auto elements = static_cast<std::size_t>(B * T);
  tokens_.resize(elements * static_cast<std::size_t>(count));
  targets_.resize(tokens_.size());
  for (int m = 0; m < count; ++m) {
    const std::int64_t first =
        (step - 1) * run.global_batch + (m * run.parallel.data + data_rank) * B;
    const std::size_t begin = static_cast<std::size_t>(m) * elements;
    for (std::size_t i = 0; i < elements; ++i) {
      const auto sample = static_cast<std::uint64_t>(first + static_cast<std::int64_t>(i) / T);
      const std::int64_t place = static_cast<std::int64_t>(i) % T;
      tokens_[begin + i] = token_of(run.model, sample, place);
      targets_[begin + i] = token_of(run.model, sample, place + 1);
    }
    micro_batches_.push_back(
        {.tokens = Tensor(std::span(tokens_).subspan(begin, elements)).reshaped({B, T}),
         .targets = Tensor(std::span(targets_).subspan(begin, elements)),
         .first_sample = static_cast<std::uint64_t>(first),
         .step = static_cast<std::uint64_t>(step)});
  }
}

MeshRunResult run_mesh(const MeshRun& run, const Interference& interference) {
  Shared shared(run);
  const WorldOptions world_options{.timeout_seconds = kHangSeconds};
  run_local_ranks(run.parallel.num_ranks(), world_options, [&](Communicator& world) {
    if (!interference.world) {
      run_rank(run, interference, world, shared);
      return;
    }
    const std::unique_ptr<Communicator> between = interference.world(world);
    run_rank(run, interference, *between, shared);
  });
  MeshRunResult result{.gradients = shared.gradients.take(),
                       .weights = std::move(shared.final_weights)};
  for (std::size_t step = 0; step < shared.facts[0].size(); ++step) {
    const StepFacts& first = shared.facts[0][step];
    for (const std::vector<StepFacts>& rank : shared.facts) {
      SL_CHECK(rank[step].loss == first.loss && rank[step].gradient_norm == first.gradient_norm,
               "ranks know different numbers of step " + std::to_string(step + 1));
    }
    result.losses.push_back(first.loss);
    result.norms.push_back(first.gradient_norm);
  }
  result.evaluation = result.losses.back();
  result.losses.pop_back();
  result.norms.pop_back();
  return result;
}

}  // namespace slackline::testing
