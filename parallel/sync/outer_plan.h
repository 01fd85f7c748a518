#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/parameter_table.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// Elements of a parameter whose anchor this rank keeps, sends and updates in outer rounds. Over the
// ranks of a worker each element stands once, but for copies that tensor ranks or both end stages
// have of it.
struct OuterShare {
  std::size_t piece = 0;  // of SyncPlan::owned, which it is a part of
  Slice range{};          // elements of the local tensor
  std::size_t first = 0;  // of them in the rank's buffers, where shares follow one another
  bool counted = false;   // not a copy: enters sums over the model, and checkpoints
  int fragment = 0;       // which shares travel together
};

// Pieces that several data ranks update alike are divided among them. `fragments` are those of
// pieces, whose shares then follow one another; empty: there is one.
[[nodiscard]] std::vector<OuterShare> outer_shares(const std::vector<OptimizerPiece>& pieces,
                                                   const std::vector<int>& fragments = {});

// Cuts a model into fragments, each about as many trained elements of parameters in a row, and
// returns those of the parameters. A parameter larger than that leaves others empty.
[[nodiscard]] std::vector<int> fragments_of(const std::vector<ParameterSpec>& table, int count);

[[nodiscard]] std::size_t elements_of(const std::vector<OuterShare>& shares);

// As large as a bucket of gradients, so that the engine's room for arriving slices is the same.
inline constexpr std::size_t kRoundTransferElements = std::size_t{4} << 20U;

// Ranges of the rank's buffers that travel as one transfer each.
[[nodiscard]] std::vector<Slice> outer_transfers(std::size_t elements);

// What of a transfer of `shares` one of several workers updates alone: its slice of it.
struct OwnedTransfer {
  Slice elements{};                  // of the transfer, in the buffers of `shares`
  Slice own{};                       // those the worker owns
  std::vector<OuterShare> shares{};  // in them; `first` counts what the worker owns in all
};

[[nodiscard]] std::vector<OwnedTransfer> owned_transfers(const std::vector<OuterShare>& shares,
                                                         int worker,
                                                         int workers);

// The shares of them all.
[[nodiscard]] std::vector<OuterShare> owned_shares(const std::vector<OuterShare>& shares,
                                                   int worker,
                                                   int workers);

// Returns the fragments that are sent at a step, of which one is due every so many; with the run's
// `last` step all are.
[[nodiscard]] std::vector<int> due_fragments(std::int64_t step,
                                             std::int64_t every,
                                             int fragments,
                                             bool last);

// Where rounds end: with the steps that a period divides; where a run chooses its period, so many
// steps after the last end.
struct OuterRounds {
  std::int64_t last_end = 0;  // step; the run's first one where there is none yet
  std::int64_t before = 0;    // the end before it: the round that travels began there
  std::int64_t period = 1;
  bool by_choice = false;

  // Whether the round that is under way ends with this step.
  [[nodiscard]] bool ends_with(std::int64_t step) const {
    return by_choice ? step >= last_end + period : step % period == 0;
  }

  // A round begins behind this step, and none came before it.
  void restart(std::int64_t step) {
    before = step;
    last_end = step;
  }

  // The round that is under way ends with this step.
  void end(std::int64_t step) {
    before = last_end;
    last_end = step;
  }
};

// The shortest period at which a round of so many seconds hides behind steps: a tenth is spare.
// A period that is in force stays while it hides the round and is not half as long again as needed.
[[nodiscard]] std::int64_t chosen_period(double round_seconds,
                                         double step_seconds,
                                         std::int64_t in_force);

}  // namespace slackline
