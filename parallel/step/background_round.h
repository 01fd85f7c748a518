#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "core/comm/communicator.h"
#include "core/kernels/update/outer_step.h"
#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"
#include "core/threads/worker.h"
#include "parallel/channel/round_transfer.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/outer_memory.h"
#include "parallel/sync/outer_plan.h"

namespace slackline {

// A late round whose update is made on the way (docs/outer.md, "In the background"): end points are
// added up where their elements' anchors are kept, each owner makes its part of the next start, and
// starts are gathered, all beside steps. At the end of a round weights and the next start change
// places.
//
// Owns one buffer of all the rank's shares, in which end points go and the next start comes; refers
// to model and memory, which must outlive it, and whose differences are the anchor that the round
// under way began at, until its sum has come. Used by the rank's thread; between its begin and
// finish() a thread of its own has the buffer and the differences. All ranks of the group call
// alike.
class BackgroundRound : public RoundTransfer {
 public:
  // `group`: ranks at this place in all workers.
  BackgroundRound(MeshModel& model, OuterMemory& memory, Communicator& group);
  ~BackgroundRound() override;
  BackgroundRound(const BackgroundRound&) = delete;
  BackgroundRound& operator=(const BackgroundRound&) = delete;

  // Whether this rank has anything that travels.
  [[nodiscard]] bool has_shares() const { return !shares_.empty(); }

  // Gives weights and the next start each other's values.
  void exchange();
  // The next start is the weights.
  void start_at_weights();
  // The next start, and weights, are the anchor of all owners. Blocks.
  void adopt_anchor();
  // The anchor of all owners comes to where the next start was. Blocks.
  void gather_anchor();

  // Submits the round whose end points exchange() has left here. `step`, divided by divisors, is
  // what its differences will move the anchor by.
  void begin(const OuterStep& step, const std::vector<double>& divisors);
  // Submits the start alone, where differences have come already.
  void begin_start(const OuterStep& step, const std::vector<double>& divisors);

  [[nodiscard]] bool is_under_way() const override { return is_under_way_; }

  [[nodiscard]] bool done() const override;
  void wait() override;
  void finish(StreamView stream) override;

  // Squares of the end points that exchange() has left here; sums over what counts.
  [[nodiscard]] double squares_of_ends();
  // Squares of this owner's part of the last sum of them.
  [[nodiscard]] double squares_of_sum() const;

 private:
  [[nodiscard]] Tensor part_of_start(const Slice& elements) const;
  // Finds an owner's part of a share among all that the rank has.
  [[nodiscard]] static Slice place_of(const OwnedTransfer& transfer, const OuterShare& share);
  // Differences become what all workers have learned, from the sum of their end points.
  void take_sum(std::size_t transfer);
  void make_start(std::size_t transfer, const OuterStep& step, const std::vector<double>& divisors);
  // Submits the gather of a transfer, when `before` has run and the last one submitted has ended.
  enum class Follows { nothing, sum };
  void gather(std::size_t transfer, Follows follows, const std::function<void()>& before);

  MeshModel* model_;
  OuterMemory* memory_;
  Communicator* group_;
  std::vector<OuterShare> shares_;  // all, as they lie in the buffer
  std::vector<OwnedTransfer> owned_;
  Buffer start_;
  Stream stream_;                   // of the update
  std::shared_ptr<Worker> worker_;  // shared with transfers
  std::vector<Transfer> transfers_{};
  bool is_under_way_ = false;
  std::vector<double> squares_of_sums_;  // by transfer
};

}  // namespace slackline
