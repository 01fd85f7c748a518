#include "tools/report/compressed_transfers.h"

#include <cstddef>
#include <vector>

namespace slackline::report {

namespace {

const PlannedClasses& planned_at(const StepPlan& plan, std::int64_t step) {
  const PlannedClasses* found = &plan.compression.front();
  for (const PlannedClasses& row : plan.compression) {
    if (row.from_step <= step) {
      found = &row;
    }
  }
  return *found;
}

}  // namespace

bool is_compressed(const PlannedClass& row) {
  return row.codec && row.sent_bytes < row.raw_bytes;
}

CompressedTransfers::CompressedTransfers(const StepPlan& plan, std::int64_t step) {
  for (const PlannedClass& row : planned_at(plan, step).classes) {
    if (is_compressed(row)) {
      classes_.insert(row.members);
    }
  }
  for (const std::vector<schedule::Op>& ops : plan.schedule.ranks) {
    const std::vector<schedule::Phase> phases = schedule::phases_of(ops);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (schedule::is_send(ops[i].kind)) {
        phases_[schedule::id_of_send(ops[i])] = phases[i];
      }
    }
  }
}

bool CompressedTransfers::contains(const schedule::TransferId& message) const {
  const auto phase = phases_.find(message);
  return phase != phases_.end() &&
         classes_.contains({.site = message.site, .stage = message.stage, .phase = phase->second});
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
