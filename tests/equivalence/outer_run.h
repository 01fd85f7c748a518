#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/step/outer_loop.h"
#include "tests/equivalence/logical_state.h"
#include "tests/equivalence/mesh_run.h"

namespace slackline::testing {

// Workers of a small model that train apart for a few steps, every rank a thread.
struct OuterRun {
  MeshRun mesh{};
  OuterConfig outer{};
  std::optional<CodecSetting> codec{};  // of rounds
  bool same_samples = false;            // all data ranks train on those of the first
  bool is_left_early = false;           // with the last round under way, as runs that are stopped
  // Makes what stands between a rank and those at its place in other workers.
  std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)> between_workers{};
};

struct OuterResult {
  std::vector<LogicalTensors> anchors{};  // of workers, at the end
  std::vector<RoundEnd> rounds{};
  std::size_t outer_bytes = 0;  // sent by all ranks
};

// Six steps; `outer` is a config's section.
[[nodiscard]] OuterRun run_of(
    const std::string& outer, int tensor, int pipeline, int data, int group);

// Falls, as the penalty by the gap wants it.
[[nodiscard]] double rate_of(std::int64_t step);

// What a test does on each rank.
struct OuterHooks {
  std::function<void(MeshModel& model, int step)> after_update{};
  // Before and after the end of a round.
  std::function<void(MeshModel& model, OuterLoop& outer)> before_end{};
  std::function<void(MeshModel& model, OuterLoop& outer)> after_end{};
  std::function<void(MeshModel& model, OuterLoop& outer)> after_step{};
};

// The weights that a rank's shares have: over a worker's ranks, those of the model.
void put_weights(MeshModel& model, LogicalState& state);

[[nodiscard]] OuterResult run_outer(const OuterRun& run, const OuterHooks& hooks = {});

}  // namespace slackline::testing
