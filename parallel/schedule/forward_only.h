#pragma once

#include "parallel/schedule/make_schedule.h"
#include "parallel/schedule/slots.h"

namespace slackline::schedule {

// Forward passes alone, for evaluation: rounds of p micro-batches, in each of which every rank runs
// its chunks in order. Receives are posted right before their pass. Any m >= 0.
[[nodiscard]] Schedule forward_only(const ScheduleOptions& options);

// Slots for such a schedule, taken in turn: a pass leaves nothing behind but what it sends.
[[nodiscard]] SlotMap slots_in_turn(const Schedule& schedule, const std::vector<int>& num_slots);

}  // namespace slackline::schedule
