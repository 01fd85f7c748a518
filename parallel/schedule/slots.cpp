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

// When a slot whose lifetime has ended may be taken again.
enum class Reuse { at_once, after_wait };

// The first op for which `begins` holds takes the slot of its (chunk, micro-batch).
template <typename Begins>
SlotMap assign(const Schedule& schedule, Begins begins, Reuse reuse = Reuse::at_once) {
  SlotMap map;
  map.slots.assign(static_cast<std::size_t>(schedule.num_stages()),
                   std::vector<int>(static_cast<std::size_t>(schedule.num_micro_batches), kNone));
  for (const std::vector<Op>& ops : schedule.ranks) {
    std::vector<bool> taken;
    std::vector<int> ended;  // to be given back
    for (const Op& op : ops) {
      if (reuse == Reuse::at_once || op.kind == OpKind::wait) {
        for (const int slot : ended) {
          taken[static_cast<std::size_t>(slot)] = false;
        }
        ended.clear();
      }
      if (op.kind == OpKind::wait) {
        continue;
      }
      int& slot =
          map.slots[static_cast<std::size_t>(op.chunk)][static_cast<std::size_t>(op.micro_batch)];
      if (begins(op.kind) && slot == kNone) {
        slot = take_lowest_free(taken);
      }
      if (ends_activations(op.kind)) {
        ended.push_back(slot);
      }
    }
    map.num_slots.push_back(static_cast<int>(taken.size()));
  }
  return map;
}

}  // namespace

SlotMap activation_slots(const Schedule& schedule) {
  return assign(schedule, [](OpKind kind) { return kind == OpKind::forward; });
}

SlotMap input_slots(const Schedule& schedule) {
  const bool ring_waits =
      schedule.kind == Kind::interleaved && schedule.transfers == Transfers::blocking;
  return assign(
      schedule,
      [](OpKind kind) { return kind == OpKind::receive_forward || kind == OpKind::forward; },
      ring_waits ? Reuse::after_wait : Reuse::at_once);
}

}  // namespace slackline::schedule
