#include "parallel/schedule/cost_model.h"

#include <cstddef>

namespace slackline::schedule {

CostModel uniform_costs(int num_stages, const ChunkCosts& costs) {
  return {.chunks = std::vector<ChunkCosts>(static_cast<std::size_t>(num_stages), costs)};
}

Seconds op_seconds(const CostModel& costs, const Op& op) {
  if (!is_compute(op.kind)) {
    return {};
  }
  const ChunkCosts& chunk = costs.chunks[static_cast<std::size_t>(op.chunk)];
  switch (op.kind) {
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

const Link& link_between(const CostModel& costs, int from, int to) {
  const auto found = costs.links.find({from, to});
  return found == costs.links.end() ? costs.link : found->second;
}

Seconds service_seconds(const Link& link, Bytes bytes) {
  if (link.bytes_per_second <= 0.0) {
    return {};
  }
  return {static_cast<double>(bytes.value) / link.bytes_per_second};
}

TransferCost transfer_cost(const CostModel& costs, const TransferId& id) {
  const auto found = costs.transfers.find(id);
  if (found != costs.transfers.end()) {
    return found->second;
  }
  const ChunkCosts& chunk = costs.chunks[static_cast<std::size_t>(id.stage)];
  return {.bytes = id.site == Site::pipeline_forward ? chunk.forward_bytes : chunk.backward_bytes};
}

void set_class_cost(CostModel& costs,
                    const Schedule& schedule,
                    const TransferClass& changed,
                    const TransferCost& cost) {
  for (const TransferId& id : members_of(schedule, changed)) {
    costs.transfers[id] = cost;
  }
}

}  // namespace slackline::schedule
