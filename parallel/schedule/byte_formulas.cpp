#include "parallel/schedule/byte_formulas.h"

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
Bytes sum_bytes(const ByteInputs& inputs) {
  const std::size_t elements = activation_elements(inputs);
  return is_parallel_in_sequence(inputs)
             ? reduce_scatter_bytes(elements, inputs.element_bytes, inputs.t)
             : inputs.all_reduce(elements, inputs.element_bytes, inputs.t);
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
    bytes += bytes_of(inputs, {.sums = 1, .gathers = cut ? 1U : 0U});
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

// Gradients that every tensor rank has a part of, from its own tokens: those of norms. Biases added
// after sums get theirs from gathered rows.
std::size_t replicated_elements(const ByteInputs& inputs, int stage) {
  const std::size_t norms = stage == last_stage(inputs) ? 2 * inputs.C : 0;
  return size(inputs.layers[size(stage)]) * 4 * inputs.C + norms;
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

std::size_t data_elements(const ByteInputs& inputs, int stage) {
  const std::size_t C = inputs.C;
  const std::size_t t = size(inputs.t);
  const std::size_t table = inputs.V / t * C;
  const std::size_t layer = 4 * C                     // norms
                            + 3 * C / t * (C + 1)     // qkv
                            + C / t * C + C           // attention projection
                            + inputs.F / t * (C + 1)  // expansion
                            + inputs.F / t * C + C;   // mlp projection
  std::size_t elements = size(inputs.layers[size(stage)]) * layer;
  if (stage == 0) {
    elements += inputs.T * C + (has_tied_pair(inputs) ? 0 : table);
  }
  if (stage == last_stage(inputs)) {
    elements += 2 * C + (inputs.tables == Tables::untied ? table : 0);
  }
  return elements;
}

AxisBytes stage_bytes(const ByteInputs& inputs, int stage) {
  AxisBytes bytes;
  bytes.tensor = size(inputs.d) * size(inputs.m) * micro_batch_tensor_bytes(inputs, stage);
  if (is_parallel_in_sequence(inputs)) {
    bytes.tensor += size(inputs.d) *
                    inputs.all_reduce(replicated_elements(inputs, stage), kFloatBytes, inputs.t);
  }
  bytes.pipeline = size(inputs.d) * size(inputs.m) * num_boundaries(inputs, stage) *
                   boundary_message_bytes(inputs);
  const std::size_t elements = data_elements(inputs, stage);
  bytes.data = size(inputs.t) * (inputs.store == GradientStore::replicated
                                     ? inputs.all_reduce(elements, kFloatBytes, inputs.d)
                                     : reduce_scatter_bytes(elements, kFloatBytes, inputs.d) +
                                           all_gather_bytes(elements, kFloatBytes, inputs.d));
  return bytes;
}

AxisBytes table_sync_bytes(const ByteInputs& inputs) {
  if (!has_tied_pair(inputs)) {
    return {};
  }
  const std::size_t t = size(inputs.t);
  const std::size_t table = inputs.V / t * inputs.C;
  if (inputs.table_sync == TableSync::fused) {
    return {.embedding = t * inputs.all_reduce(table, kFloatBytes, 2 * inputs.d)};
  }
  return {.data = 2 * t * inputs.all_reduce(table, kFloatBytes, inputs.d),
          .embedding = t * size(inputs.d) * inputs.all_reduce(table, kFloatBytes, 2)};
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
