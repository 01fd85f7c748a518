#include "tests/equivalence/outer_run.h"

#include <memory>
#include <numeric>
#include <utility>

#include "core/comm/world.h"
#include "tests/equivalence/bounds.h"

namespace slackline::testing {

namespace {

constexpr double kHangSeconds = 60.0;

}  // namespace

OuterRun run_of(const std::string& outer, int tensor, int pipeline, int data, int group) {
  OuterRun run{.outer = read_outer_config(JsonReader::parse(outer, "test"))};
  run.mesh.model = {.layers = 2, .hidden = 32, .heads = 4, .sequence = 16, .vocab = 67, .ffn = 96};
  run.mesh.steps = 6;
  run.mesh.parallel.tensor = tensor;
  run.mesh.parallel.pipeline = pipeline;
  run.mesh.parallel.data = data;
  run.mesh.parallel.group = group;
  run.mesh.parallel.groups_apart = true;
  return run;
}

double rate_of(std::int64_t step) {
  return kLearningRate / (1.0 + 0.1 * static_cast<double>(step));
}

void put_weights(MeshModel& model, LogicalState& state) {
  for (const OuterShare& share : outer_shares(model.pieces())) {
    if (share.counted) {
      const OptimizerPiece& piece = model.pieces()[share.piece];
      const Tensor weight = model.optimizer().tensors()[share.piece].weight.reshaped(
          {static_cast<std::int64_t>(piece.range.count())});
      state.put({.parameter = piece.parameter, .range = share.range},
                weight.rows(static_cast<std::int64_t>(share.range.begin - piece.range.begin),
                            static_cast<std::int64_t>(share.range.end - piece.range.begin)));
    }
  }
}

OuterResult run_outer(const OuterRun& run, const OuterHooks& hooks) {
  const int workers = run.mesh.parallel.num_workers();
  std::vector<std::unique_ptr<LogicalState>> anchors;
  anchors.reserve(static_cast<std::size_t>(workers));
  for (int i = 0; i < workers; ++i) {
    anchors.push_back(std::make_unique<LogicalState>(run.mesh.model));
  }
  OuterResult result;
  std::vector<std::size_t> bytes(static_cast<std::size_t>(run.mesh.parallel.num_ranks()));
  const WorldOptions options{.timeout_seconds = kHangSeconds};
  run_local_ranks(run.mesh.parallel.num_ranks(), options, [&](Communicator& world) {
    Groups groups(world, run.mesh.parallel, run.mesh.model.tie_embeddings);
    if (run.between_workers) {
      groups.outer = run.between_workers(std::move(groups.outer));
    }
    MeshModel model(run.mesh.options(), groups);
    OuterLoop outer({.config = run.outer, .rate = rate_of, .codec = run.codec}, model);
    const auto call = [&](const auto& hook, auto& argument) {
      if (hook) {
        hook(model, argument);
      }
    };
    model.initialize(kSeed);
    outer.restart(0);
    for (int step = 1; step <= run.mesh.steps; ++step) {
      const bool last = step == run.mesh.steps && !run.is_left_early;
      const bool ends = last || outer.ends_round(step);
      RankBatches batches(run.mesh, run.same_samples ? 0 : groups.replica(), step);
      const StepFacts facts = model.make_gradients(batches.micro_batches());
      model.update(rate_of(step),
                   facts.gradient_norm,
                   ends ? MeshModel::Publishing::caller : MeshModel::Publishing::update);
      outer.note_update();
      call(hooks.after_update, step);
      if (ends) {
        call(hooks.before_end, outer);
        const RoundEnd end = outer.end_round(step, {.loss = facts.loss}, last);
        call(hooks.after_end, outer);
        if (world.rank() == 0) {
          result.rounds.push_back(end);
        }
        model.require_sync();
      }
      call(hooks.after_step, outer);
    }
    model.finish_gather();
    if (!run.is_left_early) {  // weights are the anchor
      put_weights(model, *anchors[static_cast<std::size_t>(groups.worker_index())]);
    }
    bytes[static_cast<std::size_t>(world.rank())] = groups.outer->bytes_sent();
  });
  result.outer_bytes = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
  for (const std::unique_ptr<LogicalState>& anchor : anchors) {
    if (!run.is_left_early) {
      result.anchors.push_back(anchor->take());
    }
  }
  return result;
}

}  // namespace slackline::testing
