#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "core/comm/communicator.h"
#include "core/comm/engine/moves.h"
#include "core/comm/engine/scratch_pool.h"
#include "core/tensor/tensor.h"

namespace slackline {

// The algorithms that go directly, as seen by rank `rank` of `size` >= 2; S is the tensor's bytes,
// own its slice's. Sends of nothing are left out on both sides. Bytes each rank sends:
// collective_bytes.h.
class CollectiveSteps {
 public:
  CollectiveSteps(int rank, int size, std::shared_ptr<ScratchPool> pool)
      : rank_(rank), size_(size), pool_(std::move(pool)) {}

  // Everybody sends all to everybody and sums where exchanges_all(); else slice r goes to rank r,
  // which sums it and sends the sum to all. Scratch: (size - 1) * (S or own). A tensor that stands
  // for a larger one goes the larger one's way.
  [[nodiscard]] Moves all_reduce(const Tensor& data,
                                 SumOrder order,
                                 std::size_t whole_bytes = 0) const;
  [[nodiscard]] Moves reduce_scatter(const Tensor& data, SumOrder order) const;
  [[nodiscard]] Moves all_gather(const Tensor& data) const;
  [[nodiscard]] Moves all_to_all(const Tensor& from, const Tensor& to) const;

  // Up to kTreeBytes: a binomial tree. Above: slice r goes to rank r, which sends it to the others.
  [[nodiscard]] Moves broadcast(const Tensor& data, int root) const;

  // Dissemination: in round k a message to the rank 2^k further on.
  [[nodiscard]] Moves barrier() const;

 private:
  [[nodiscard]] Slice slice(const Tensor& data, int rank) const;

  // Everybody's slices to everybody, and the sum of the own one.
  void add_reduction(const Tensor& data, SumOrder order, Moves& moves) const;
  [[nodiscard]] Step gather_step(const Tensor& data, Lane lane) const;
  [[nodiscard]] Moves gathered_all_reduce(const Tensor& data, SumOrder order) const;
  [[nodiscard]] Moves tree_broadcast(const Tensor& data, int root) const;

  // A receive of `part` from each other rank into scratch, and the sum of these and the own one.
  void receive_and_sum(
      const Tensor& data, Slice part, SumOrder order, Moves& moves, Step& step) const;

  int rank_;
  int size_;
  std::shared_ptr<ScratchPool> pool_;  // shared with every lease
};

}  // namespace slackline
