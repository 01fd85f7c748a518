#include "parallel/plan/cost_model.h"

#include <cstddef>

namespace slackline::schedule {

namespace {

void add(const std::vector<TensorSums>& sums, std::vector<TensorSums>& list) {
  list.insert(list.end(), sums.begin(), sums.end());
}

Seconds computing(const ChunkCosts& chunk, OpKind kind) {
  switch (kind) {
    case OpKind::forward:
      return chunk.forward;
    case OpKind::backward_input:
      return chunk.backward_input;
    case OpKind::backward_weight:
      return chunk.backward_weight;
    case OpKind::backward:
      return chunk.backward_input + chunk.backward_weight;
    default:
      return {};
  }
}

}  // namespace

std::vector<TensorSums> tensor_sums(const CostModel& costs, const Op& op) {
  const ChunkCosts& chunk = costs.chunks[static_cast<std::size_t>(op.chunk)];
  std::vector<TensorSums> sums;
  if (op.kind == OpKind::forward) {
    add(chunk.forward_sums, sums);
  }
  if (makes_input_gradient(op.kind)) {
    add(chunk.backward_sums, sums);
  }
  if (op.kind == OpKind::backward || op.kind == OpKind::backward_weight) {
    add(chunk.weight_sums, sums);
  }
  return sums;
}

Seconds op_seconds(const CostModel& costs, const Op& op) {
  if (!is_compute(op.kind)) {
    return {};
  }
  Seconds seconds = computing(costs.chunks[static_cast<std::size_t>(op.chunk)], op.kind);
  for (const TensorSums& sums : tensor_sums(costs, op)) {
    seconds += sums.seconds();
  }
  return seconds;
}

const Link& link_between(const CostModel& costs, int from, int to) {
  const auto found = costs.links.find({from, to});
  return found == costs.links.end() ? costs.link : found->second;
}

Seconds service_seconds(const Link& link, double bytes) {
  return {link.bytes_per_second > 0.0 ? bytes / link.bytes_per_second : 0.0};
}

Bytes transfer_bytes(const CostModel& costs, const TransferId& id) {
  const auto found = costs.transfers.find(id);
  if (found != costs.transfers.end()) {
    return found->second;
  }
  const ChunkCosts& chunk = costs.chunks[static_cast<std::size_t>(id.stage)];
  return id.site == Site::pipeline_forward ? chunk.forward_bytes : chunk.backward_bytes;
}

const ClassCost& cost_of_class(const CostModel& costs, const TransferClass& members) {
  static const ClassCost plain;
  const auto found = costs.compressed.find(members);
  return found == costs.compressed.end() ? plain : found->second;
}

}  // namespace slackline::schedule
