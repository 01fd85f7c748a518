#pragma once

#include <cstddef>
#include <vector>

#include "parallel/schedule/unit.h"

// Payload bytes of one step in closed form, summed over ranks: what the ranks send, per mesh axis.
// docs/schedule.md derives them. Not counted: what is a few numbers a step (norm, loss, agreement).
// Buckets of layers are taken to be above the size at which a communicator changes its rule.
namespace slackline::schedule {

enum class GradientStore { replicated, sharded };  // data_strategy replicate, zero1
enum class TableSync { fused, separate };          // embedding_sync
enum class SequenceParallel { off, on };
enum class RecomputeBlocks { off, on };
enum class Tables { tied, untied };

using AllReduceBytes = Bytes (*)(std::size_t elements, std::size_t element_bytes, int ranks);

// An all-reduce of slices: each rank sends every slice but its own to its owner, who sends the sum
// back. The other collectives do half of that. Balanced slices of any n add up to the same.
[[nodiscard]] Bytes all_reduce_bytes(std::size_t elements, std::size_t element_bytes, int ranks);
[[nodiscard]] Bytes reduce_scatter_bytes(std::size_t elements,
                                         std::size_t element_bytes,
                                         int ranks);
[[nodiscard]] Bytes all_gather_bytes(std::size_t elements, std::size_t element_bytes, int ranks);

struct ByteInputs {
  int p = 1;                        // pipeline ranks
  int t = 1;                        // tensor ranks
  int d = 1;                        // data ranks
  int m = 1;                        // micro-batches of a rank and step
  std::vector<int> layers{};        // of each virtual stage, p v of them
  std::size_t B = 0;                // sequences of a micro-batch
  std::size_t T = 0;                // tokens of a sequence; also positions
  std::size_t C = 0;                // channels
  std::size_t F = 0;                // ffn, a multiple of t
  std::size_t V = 0;                // vocabulary; tensor rank r has rows V r / t to V (r+1) / t
  std::size_t element_bytes = 4;    // of activations; partial sums of them travel as fp32
  std::size_t loss_statistics = 3;  // floats a rank contributes per token to the softmax
  SequenceParallel sequence_parallel{};
  RecomputeBlocks recompute{};
  Tables tables{};
  GradientStore store{};
  TableSync table_sync{};
  AllReduceBytes all_reduce = all_reduce_bytes;  // the communicator's own rule
};

struct AxisBytes {
  Bytes tensor{};
  Bytes pipeline{};
  Bytes data{};
  Bytes embedding{};

  friend bool operator==(const AxisBytes&, const AxisBytes&) = default;
};

// Sums and gathers of whole (N, C) activations on the tensor axis.
struct TensorTransfers {
  std::size_t sums = 0;
  std::size_t gathers = 0;

  friend bool operator==(const TensorTransfers&, const TensorTransfers&) = default;
};

// Of one layer and micro-batch: forward, backward and recompute together.
[[nodiscard]] TensorTransfers layer_transfers(const ByteInputs& inputs);

// One message across a boundary in one direction, all tensor ranks' slices together.
[[nodiscard]] Bytes boundary_message_bytes(const ByteInputs& inputs);

// Gradient elements of a virtual stage that one rank reduces on the data axis, gaps between
// parameters included. Tied tables stand there only where one rank holds both ends (p = 1).
[[nodiscard]] std::size_t data_elements(const ByteInputs& inputs, int stage, int tensor_rank = 0);

// What the ranks of one virtual stage (all tensor and data ranks) send on the tensor, pipeline and
// data axis. The tied table's two copies are not in it. The norms of a rank's chunks travel
// together and count at its first.
[[nodiscard]] AxisBytes stage_bytes(const ByteInputs& inputs, int stage);

// The tied table's synchronisation between the first and last stage: all of the embedding axis, and
// the data axis' share where it is separate.
[[nodiscard]] AxisBytes table_sync_bytes(const ByteInputs& inputs);

// All ranks: stages and table.
[[nodiscard]] AxisBytes step_bytes(const ByteInputs& inputs);

}  // namespace slackline::schedule
