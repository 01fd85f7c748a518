#include "parallel/predict/byte_formulas.h"

namespace slackline::schedule {

namespace {

constexpr std::size_t kFloatBytes = 4;  // gradients, master weights and loss statistics

std::size_t size(int value) {
  return static_cast<std::size_t>(value);
}

bool is_parallel_in_sequence(const ByteInputs& inputs) {
  return inputs.sequence_parallel == SequenceParallel::on && inputs.t > 1;
}

bool has_tied_pair(const ByteInputs& inputs) {
  return inputs.tables == Tables::tied && inputs.p > 1;
}

std::size_t activation_elements(const ByteInputs& inputs) {
  return inputs.B * inputs.T * inputs.C;
}

// A sum of partial products: an all-reduce, or under sequence parallelism a reduce-scatter.
Bytes sum_bytes(const ByteInputs& inputs, std::size_t element_bytes = kFloatBytes) {
  const std::size_t elements = activation_elements(inputs);
  return is_parallel_in_sequence(inputs) ? reduce_scatter_bytes(elements, element_bytes, inputs.t)
                                         : inputs.all_reduce(elements, element_bytes, inputs.t);
}

Bytes gather_bytes(const ByteInputs& inputs) {
  return all_gather_bytes(activation_elements(inputs), inputs.element_bytes, inputs.t);
}

Bytes bytes_of(const ByteInputs& inputs, const TensorTransfers& transfers) {
  return transfers.sums * sum_bytes(inputs) + transfers.gathers * gather_bytes(inputs);
}

int last_stage(const ByteInputs& inputs) {
  return static_cast<int>(inputs.layers.size()) - 1;
}

// How many boundaries with a transfer the stage has: one to each side that is another rank's.
std::size_t num_boundaries(const ByteInputs& inputs, int stage) {
  if (inputs.p == 1) {
    return 0;
  }
  return (stage > 0 ? 1U : 0U) + (stage < last_stage(inputs) ? 1U : 0U);
}

// Of one micro-batch of one data rank.
Bytes micro_batch_tensor_bytes(const ByteInputs& inputs, int stage) {
  const bool cut = is_parallel_in_sequence(inputs);
  Bytes bytes = size(inputs.layers[size(stage)]) * bytes_of(inputs, layer_transfers(inputs));
  if (stage == 0) {
    // Of embedded tokens, which one rank each has: nothing is rounded.
    bytes += sum_bytes(inputs, inputs.element_bytes);
    bytes += bytes_of(inputs, {.sums = 0, .gathers = cut ? 1U : 0U});
  }
  if (stage == last_stage(inputs)) {
    const std::size_t statistics = inputs.B * inputs.T * inputs.loss_statistics;
    bytes += bytes_of(inputs, {.sums = 1, .gathers = cut ? 1U : 0U});
    bytes += all_gather_bytes(size(inputs.t) * statistics, kFloatBytes, inputs.t);
  }
  if (!cut) {
    // Slices that arrive over the pipeline axis are put together on the tensor axis.
    bytes += num_boundaries(inputs, stage) * gather_bytes(inputs);
  }
  return bytes;
}

// Elements that a parameter of n takes of the gradient buffer: it ends on a cache line.
std::size_t padded(std::size_t n) {
  constexpr std::size_t kLineElements = 16;
  return (n + kLineElements - 1) / kLineElements * kLineElements;
}

// Matrices and biases of one layer on one tensor rank.
std::size_t layer_elements(const ByteInputs& inputs) {
  const std::size_t C = inputs.C;
  const std::size_t c = C / size(inputs.t);
  const std::size_t f = inputs.F / size(inputs.t);
  return padded(3 * c * C) + padded(3 * c)  // qkv
         + padded(c * C) + padded(C)        // attention projection
         + padded(f * C) + padded(f)        // expansion
         + padded(f * C) + padded(C);       // mlp projection
}

std::size_t norm_elements(const ByteInputs& inputs, int stage) {
  const std::size_t final_norm = stage == last_stage(inputs) ? 2 : 0;
  return (4 * size(inputs.layers[size(stage)]) + final_norm) * padded(inputs.C);
}

std::size_t table_elements(const ByteInputs& inputs, int tensor_rank) {
  const std::size_t t = size(inputs.t);
  const std::size_t r = size(tensor_rank);
  return padded((inputs.V * (r + 1) / t - inputs.V * r / t) * inputs.C);
}

// Of all chunks of the rank that holds this stage, if it is the first of them.
std::size_t norm_bucket(const ByteInputs& inputs, int stage) {
  std::size_t elements = 0;
  for (int own = stage; stage < inputs.p && own <= last_stage(inputs); own += inputs.p) {
    elements += norm_elements(inputs, own);
  }
  return elements;
}

// Everything of a stage that is neither a norm nor a tied table.
std::size_t layer_buckets(const ByteInputs& inputs, int stage, int tensor_rank) {
  const bool untied = inputs.tables == Tables::untied;
  const std::size_t table = untied ? table_elements(inputs, tensor_rank) : 0;
  std::size_t elements = size(inputs.layers[size(stage)]) * layer_elements(inputs);
  if (stage == 0) {
    elements += padded(inputs.T * inputs.C) + table;
  }
  if (stage == last_stage(inputs)) {
    elements += table;
  }
  return elements;
}

// A tied table whose two ends one rank has.
std::size_t table_bucket(const ByteInputs& inputs, int tensor_rank) {
  const bool here = inputs.tables == Tables::tied && inputs.p == 1;
  return here ? table_elements(inputs, tensor_rank) : 0;
}

// What becomes of a bucket's gradients, and of its weights under zero1, in a group of ranks.
Bytes bucket_bytes(const ByteInputs& inputs, std::size_t elements, int ranks) {
  return inputs.store == GradientStore::replicated
             ? inputs.all_reduce(elements, kFloatBytes, ranks)
             : reduce_scatter_bytes(elements, kFloatBytes, ranks) +
                   all_gather_bytes(elements, kFloatBytes, ranks);
}

}  // namespace

Bytes all_reduce_bytes(std::size_t elements, std::size_t element_bytes, int ranks) {
  return {2 * size(ranks - 1) * elements * element_bytes};
}

Bytes reduce_scatter_bytes(std::size_t elements, std::size_t element_bytes, int ranks) {
  return {size(ranks - 1) * elements * element_bytes};
}

Bytes all_gather_bytes(std::size_t elements, std::size_t element_bytes, int ranks) {
  return {size(ranks - 1) * elements * element_bytes};
}

TensorTransfers layer_transfers(const ByteInputs& inputs) {
  const bool cut = is_parallel_in_sequence(inputs);
  // Forward and backward: two sums each. Cut rows are gathered before qkv and the expansion, both
  // norm outputs once more in backward, and the output gradients of both projections.
  TensorTransfers transfers{.sums = 4, .gathers = cut ? 6U : 0U};
  if (inputs.recompute == RecomputeBlocks::on) {
    // The forward pass again but for the last sum, whose result is the block's known output.
    transfers.sums += 1;
    transfers.gathers += cut ? 2 : 0;
  }
  return transfers;
}

Bytes boundary_message_bytes(const ByteInputs& inputs) {
  return {activation_elements(inputs) * inputs.element_bytes};
}

std::size_t data_elements(const ByteInputs& inputs, int stage, int tensor_rank) {
  return layer_buckets(inputs, stage, tensor_rank) + norm_elements(inputs, stage) +
         table_bucket(inputs, tensor_rank);
}

AxisBytes stage_bytes(const ByteInputs& inputs, int stage) {
  AxisBytes bytes;
  const std::size_t norms = norm_bucket(inputs, stage);
  bytes.tensor = size(inputs.d) * size(inputs.m) * micro_batch_tensor_bytes(inputs, stage);
  if (is_parallel_in_sequence(inputs)) {
    // Each tensor rank has norm gradients of its own tokens.
    bytes.tensor += size(inputs.d) * inputs.all_reduce(norms, kFloatBytes, inputs.t);
  }
  bytes.pipeline = size(inputs.d) * size(inputs.m) * num_boundaries(inputs, stage) *
                   boundary_message_bytes(inputs);
  for (int r = 0; r < inputs.t; ++r) {
    bytes.data += bucket_bytes(inputs, layer_buckets(inputs, stage, r), inputs.d);
    bytes.data += bucket_bytes(inputs, norms, inputs.d);
    bytes.data += bucket_bytes(inputs, table_bucket(inputs, r), inputs.d);
  }
  return bytes;
}

AxisBytes table_sync_bytes(const ByteInputs& inputs) {
  AxisBytes bytes;
  for (int r = 0; has_tied_pair(inputs) && r < inputs.t; ++r) {
    const std::size_t table = table_elements(inputs, r);
    if (inputs.table_sync == TableSync::fused) {
      bytes.embedding += bucket_bytes(inputs, table, 2 * inputs.d);
    } else {
      bytes.embedding += size(inputs.d) * inputs.all_reduce(table, kFloatBytes, 2);
      bytes.data += 2 * bucket_bytes(inputs, table, inputs.d);
    }
  }
  return bytes;
}

AxisBytes step_bytes(const ByteInputs& inputs) {
  AxisBytes sum = table_sync_bytes(inputs);
  for (int stage = 0; stage <= last_stage(inputs); ++stage) {
    const AxisBytes bytes = stage_bytes(inputs, stage);
    sum.tensor += bytes.tensor;
    sum.pipeline += bytes.pipeline;
    sum.data += bytes.data;
  }
  return sum;
}

}  // namespace slackline::schedule
