#include "tools/report/compressed_transfers.h"

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
  for (const auto& [id, members] : schedule::boundary_classes(plan.schedule)) {
    if (contains(members)) {
      messages_.insert(id);
    }
  }
}

}  // namespace slackline::report
