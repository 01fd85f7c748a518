#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "optim/outer_config.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/outer_memory.h"

namespace slackline {

// How far a worker's updates go in a round, for penalties by the gap (docs/outer.md): the root mean
// square of AdamW's directions over elements, updates and workers. By the inequality of Cauchy and
// Schwarz a round's steps, and their mean over workers, move weights at most so far a step, times
// the rate. Where it is not measured, 1.
//
// Refers to model and memory, which must outlive it. Used by the rank's thread.
class RoundReach {
 public:
  RoundReach(OuterReach kind, MeshModel& model, const OuterMemory& memory);

  [[nodiscard]] bool is_measured() const { return !round_.empty(); }

  // Notes an update that the model has just made.
  void note_update();

  // What a rank knows of the round under way: squares by parameter, and behind them the updates, of
  // which the first rank of a worker tells. Sums over ranks are a worker's, and over all ranks the
  // run's. Empty where nothing is measured.
  [[nodiscard]] std::span<const double> round() const { return round_; }

  // Takes the sum over all ranks for the round that ends, and begins another.
  void end_round(std::span<const double> sum);

  // Returns the length of an update in the round that has ended, of a parameter or of all. 1 where
  // it is not known, as when nothing was updated.
  [[nodiscard]] double of(std::size_t parameter) const;
  [[nodiscard]] double of_all() const;

  // What a checkpoint keeps: of the round that has ended, and every worker's of the one under way,
  // one behind the other. The latter is as of the last call of gather_workers(), which all ranks of
  // the run make.
  void gather_workers();

  [[nodiscard]] const std::vector<double>& ended() const { return ended_; }

  [[nodiscard]] const std::vector<double>& of_workers() const { return of_workers_; }

  // Goes on from them. Numbers of another model, or of runs that measured nothing, are left.
  void load(const std::vector<double>& ended, const std::vector<double>& of_workers);

 private:
  [[nodiscard]] double length(double squares, double elements) const;

  MeshModel* model_;
  const OuterMemory* memory_;
  std::vector<double> round_;
  std::vector<double> ended_;  // rounded to float: the order of a sum does not show
  std::vector<double> of_workers_;
};

}  // namespace slackline
