#pragma once

#include <cstddef>
#include <vector>

#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"
#include "model/parameters.h"
#include "optim/adamw_optimizer.h"
#include "parallel/sync/shared_memory.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// Where a rank's weights, gradients and masters lie, by buckets of its sync plan. A rank that holds
// all of them has them in the buffers of its Parameters. Where data ranks share them out, they are
// here: its shares for the run, and slots in which weights are whole while a pass reads them, and
// gradients while a pass makes them; parameters then view the slots. Under bf16 what passes read is
// bf16 and masters, f32, are kept of what the rank updates alone (norms and biases stay f32). What
// is not trained has weights alone.
//
// Refers to parameters and plan, which must outlive it.
class BucketMemory {
 public:
  // Sets the parameters' views where their memory is others'. `backing` is that of what is made.
  BucketMemory(Parameters& parameters, const SyncPlan& plan, Backing backing);

  // All elements of a bucket, as one row: in place, or in its slot.
  [[nodiscard]] Tensor weights(std::size_t bucket) const;
  [[nodiscard]] Tensor gradients(std::size_t bucket) const;

  // This rank's elements of them, one range behind the other. Views of the above where it has all.
  [[nodiscard]] Tensor weight_share(std::size_t bucket) const;
  [[nodiscard]] Tensor gradient_share(std::size_t bucket) const;
  // The share of a tied table's input gradient where one rank has both ends; empty elsewhere.
  [[nodiscard]] Tensor input_share(std::size_t bucket) const;

  // The first of them, range by range.
  [[nodiscard]] std::vector<Tensor> own_weights(std::size_t bucket) const;

  // Elements of a parameter whose weights this rank has, as passes read them.
  struct Held {
    Slice range{};     // of its local tensor
    Tensor weights{};  // as one row
  };

  [[nodiscard]] std::vector<Held> held(std::size_t bucket, const Parameter& parameter) const;

  // What a collective works in.
  [[nodiscard]] Tensor elements_of(const SyncOp& op) const;

  // A piece as the optimizer sees it; without a gradient where it is not trained.
  [[nodiscard]] OptimizedTensor optimized(const OptimizerPiece& piece, WeightDecay decay) const;

  // What moves data here moves none where memory is not to be touched.

  // Puts this rank's share of a bucket's weights where it stands among the whole ones.
  void place_own_weights(StreamView stream, std::size_t bucket) const;

  void clear_gradients(StreamView stream, std::size_t bucket) const;

  // Adds what a pass left of a bucket's gradients to a share of this rank's; the first pass of a
  // step writes it.
  void add_own_gradients(StreamView stream,
                         std::size_t bucket,
                         const Tensor& share,
                         Accumulate accumulate) const;

  // Adds a tied table's input share to its gradient share, where there is one: input's first.
  void join_gradients(StreamView stream, std::size_t bucket) const;

 private:
  void set_views(Parameters& parameters);

  const Parameters* parameters_;
  const SyncPlan* plan_;
  bool shared_;
  std::vector<SharedMemory::Offsets> offsets_;
  Buffer f32_weights_;  // norms and biases; all where passes read f32
  Buffer bf16_weights_;
  Buffer masters_;
  Buffer bias_copies_;
  Buffer gradients_;
  Buffer input_gradient_;
  std::vector<Buffer> weight_slots_;
  std::vector<Buffer> gradient_slots_;
};

}  // namespace slackline
