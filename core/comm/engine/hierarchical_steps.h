#pragma once

#include <cstddef>
#include <memory>

#include "core/comm/communicator.h"
#include "core/comm/engine/moves.h"
#include "core/comm/engine/scratch_pool.h"
#include "core/comm/hierarchy.h"
#include "core/tensor/tensor.h"

namespace slackline {

// The algorithms that go through groups (Hierarchy), as seen by one rank: sequential or overlapped.
// No growing sum is forwarded: a slice goes to the rank that adds it, so that every sum has its
// order. Rank (j, r) stands at place r of group j; c(b, r) is the slice of rank (b, r).
//
// Overlapped, a reduction over g groups has steps k = 0 .. g - 1:
//   inside the group, slices of block b = j + 1 + k (mod g) go to the place of their owner, and
//   rank (j, r) adds up c(b, r);
//   between groups, for k > 0, it sends the sum of the block before, c(j + k, r), to its owner and
//   receives the sum of its own slice from group j - k.
// In the last step b = j, and the groups' sums are added in their order. A gather has steps
// k = 0 .. g - 1 too:
//   between groups, for k < g - 1, rank (j, r) sends its slice to group j + k + 1 and receives
//   c(j - k - 1, r);
//   inside the group, c(j - k, r), which came in the step before, goes to all places.
// Sequential, the parts of a reduction inside the group are one step, and those between are
// another; of a gather the other way round.
//
// Bytes each rank sends, and scratch: collective_bytes.h.
class HierarchicalSteps {
 public:
  // REQUIRES: the hierarchy fits `size`, with two groups of two ranks at least; `way` is not
  // direct.
  HierarchicalSteps(int rank,
                    int size,
                    std::shared_ptr<ScratchPool> pool,
                    const Hierarchy& hierarchy,
                    Hierarchy::Way way);

  // REQUIRES of sums: the order adds whole groups first (Hierarchy::way_of_sum).
  [[nodiscard]] Moves all_reduce(const Tensor& data, SumOrder order) const;
  [[nodiscard]] Moves reduce_scatter(const Tensor& data, SumOrder order) const;
  [[nodiscard]] Moves all_gather(const Tensor& data) const;

 private:
  // Holds what the steps of one sum have in common.
  struct Reduction {
    Tensor data{};
    SumOrder order{};
    DType sum_dtype = DType::f32;      // of a group's sums
    std::byte* from_groups = nullptr;  // where the others' sums of the own slice arrive, in order
    std::byte* group_sums = nullptr;   // null: they stay in the tensor
    std::byte* from_ranks = nullptr;   // where slices of the other ranks arrive
  };

  [[nodiscard]] bool overlaps() const { return way_ == Hierarchy::Way::overlapped; }

  [[nodiscard]] int rank_at(int group, int place) const { return group * num_places_ + place; }

  // The group `distance` after this one, round the ring of groups; `distance` may be negative.
  [[nodiscard]] int group_at(int distance) const;
  [[nodiscard]] Slice slice(const Tensor& data, int group, int place) const;

  void add_reduction(const Tensor& data, SumOrder order, Moves& moves) const;
  [[nodiscard]] Reduction reduction_of(const Tensor& data, SumOrder order, Moves& moves) const;
  // Returns where this group's sum of the slice of rank (group, this place) stands.
  [[nodiscard]] std::byte* group_sum(const Reduction& sum, int group) const;
  // Adds the slice of rank (group, this place) inside this group; its addends arrive at `landing`.
  // Returns what follows them there.
  std::byte* reduce_inside(const Reduction& sum, int group, std::byte* landing, Step& step) const;
  void exchange_sums(const Reduction& sum, int distance, Step& step) const;
  void add_groups(const Reduction& sum, Step& step) const;

  void add_gather(const Tensor& data, Moves& moves) const;
  void exchange_slices(const Tensor& data, int distance, Step& step) const;
  // Tells the own group the slices of another one.
  void gather_inside(const Tensor& data, int group, Step& step) const;

  int size_;
  int num_places_;
  int num_groups_;
  int group_;
  int place_;
  std::shared_ptr<ScratchPool> pool_;  // shared with every lease
  Hierarchy hierarchy_;
  Hierarchy::Way way_;
};

// Says how a collective's data moves: directly, or through groups where the hierarchy has it so.
[[nodiscard]] Moves moves_of(const Operation& collective,
                             int rank,
                             int size,
                             const std::shared_ptr<ScratchPool>& pool,
                             const Hierarchy& hierarchy);

}  // namespace slackline
