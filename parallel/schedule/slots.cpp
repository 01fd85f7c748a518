#include "parallel/schedule/slots.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace slackline::schedule {

namespace {

constexpr int kNone = -1;

int take_lowest_free(std::vector<bool>& taken) {
  const auto free = std::find(taken.begin(), taken.end(), false);
  const auto slot = std::distance(taken.begin(), free);
  if (free == taken.end()) {
    taken.push_back(true);
  } else {
    *free = true;
  }
  return static_cast<int>(slot);
}

// The first op for which `begins` holds takes the slot of its (chunk, micro-batch).
template <typename Begins, typename Ends>
SlotMap assign(const Schedule& schedule, Begins begins, Ends ends) {
  SlotMap map;
  map.slots.assign(static_cast<std::size_t>(schedule.num_stages()),
                   std::vector<int>(static_cast<std::size_t>(schedule.num_micro_batches), kNone));
  for (const std::vector<Op>& ops : schedule.ranks) {
    std::vector<bool> taken;
    for (const Op& op : ops) {
      int& slot =
          map.slots[static_cast<std::size_t>(op.chunk)][static_cast<std::size_t>(op.micro_batch)];
      if (begins(op.kind) && slot == kNone) {
        slot = take_lowest_free(taken);
      }
      if (ends(op.kind)) {
        taken[static_cast<std::size_t>(slot)] = false;
      }
    }
    map.num_slots.push_back(static_cast<int>(taken.size()));
  }
  return map;
}

}  // namespace

SlotMap activation_slots(const Schedule& schedule) {
  return assign(
      schedule, [](OpKind kind) { return kind == OpKind::forward; }, ends_activations);
}

SlotMap input_slots(const Schedule& schedule) {
  return assign(
      schedule,
      [](OpKind kind) { return kind == OpKind::receive_forward || kind == OpKind::forward; },
      ends_activations);
}

SlotMap gradient_slots(const Schedule& schedule) {
  return assign(
      schedule,
      [](OpKind kind) { return kind == OpKind::receive_backward || makes_input_gradient(kind); },
      makes_input_gradient);
}

}  // namespace slackline::schedule
