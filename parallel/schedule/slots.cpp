#include "parallel/schedule/slots.h"

#include <algorithm>
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

}  // namespace

SlotMap input_slots(const Schedule& schedule) {
  const bool after_wait =
      schedule.kind == Kind::interleaved && schedule.transfers == Transfers::blocking;
  SlotMap map;
  map.slots.assign(index(schedule.num_stages()),
                   std::vector<int>(index(schedule.num_micro_batches), kNone));
  for (const std::vector<Op>& ops : schedule.ranks) {
    std::vector<bool> taken;
    std::vector<int> ended;  // to be given back
    for (const Op& op : ops) {
      if (!after_wait || op.kind == OpKind::wait) {
        for (const int slot : ended) {
          taken[index(slot)] = false;
        }
        ended.clear();
      }
      if (op.kind == OpKind::wait) {
        continue;
      }
      int& slot = map.slots[index(op.chunk)][index(op.micro_batch)];
      const bool begins = op.kind == OpKind::receive_forward || op.kind == OpKind::forward;
      if (begins && slot == kNone) {
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

}  // namespace slackline::schedule
