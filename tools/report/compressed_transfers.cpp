#include "tools/report/compressed_transfers.h"

namespace slackline::report {

bool is_compressed(const PlannedClass& row) {
  return row.codec && row.sent_bytes < row.raw_bytes;
}

CompressedTransfers::CompressedTransfers(const StepPlan& plan, std::int64_t step) {
  for (const PlannedClass& row : plan_at(plan.compression, step).classes) {
    if (is_compressed(row)) {
      classes_.insert(row.members);
    }
  }
  for (const auto& [id, members] : schedule::boundary_classes(plan.schedule)) {
    if (classes_.contains(members)) {
      messages_.insert(id);
    }
  }
}

bool CompressedTransfers::contains(const schedule::TimelineNode& node) const {
  switch (node.kind) {
    case schedule::NodeKind::transfer:
      return contains(schedule::id_of_send(node.op));
    case schedule::NodeKind::data_reduction:
    case schedule::NodeKind::embedding_sync:
    case schedule::NodeKind::parameter_gather:
      return classes_.contains(node.members);
    default:
      return false;
  }
}

}  // namespace slackline::report
