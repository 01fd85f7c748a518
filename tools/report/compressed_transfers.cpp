#include "tools/report/compressed_transfers.h"

#include <cstddef>
#include <vector>

namespace slackline::report {

const PlannedClasses& planned_at(const StepPlan& plan, std::int64_t step) {
  const PlannedClasses* found = &plan.compression.front();
  for (const PlannedClasses& row : plan.compression) {
    if (row.from_step <= step) {
      found = &row;
    }
  }
  return *found;
}

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
         contains(schedule::TransferClass{
             .site = message.site, .stage = message.stage, .phase = phase->second});
}

}  // namespace slackline::report
