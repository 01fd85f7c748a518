#pragma once

#include "parallel/schedule/make_schedule.h"

namespace slackline::schedule {

// A kind of schedule as those need it who read its name, generate it and run it. The file of its
// generator ends with this constant. Functions are pure.
struct ScheduleTraits {
  const char* name = "";         // of the config's "schedule"
  bool splits_backward = false;  // gradients of inputs and of weights are passes of their own

  // What one rank computes, in order, without any transfer. On each chunk backward passes and
  // weight parts run in ascending micro-batch order.
  ComputeOrder (*compute_order)(const ScheduleOptions& options, int rank) = nullptr;
};

[[nodiscard]] const ScheduleTraits& traits_of(Kind kind);

}  // namespace slackline::schedule
