#include "parallel/schedule/forward_only.h"

#include <algorithm>

#include "parallel/schedule/transfer_passes.h"

namespace slackline::schedule {

Schedule forward_only(const ScheduleOptions& options) {
  Schedule schedule{.kind = Kind::gpipe,
                    .transfers = options.transfers,
                    .num_ranks = options.num_ranks,
                    .num_chunks = options.num_chunks,
                    .num_micro_batches = options.num_micro_batches};
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    std::vector<Op> ops;
    for (int first = 0; first < options.num_micro_batches; first += options.num_ranks) {
      const int end = std::min(first + options.num_ranks, options.num_micro_batches);
      for (int chunk = rank; chunk < schedule.num_stages(); chunk += options.num_ranks) {
        for (int micro_batch = first; micro_batch < end; ++micro_batch) {
          const Op pass{OpKind::forward, chunk, micro_batch};
          append_receive(schedule, pass, ops);
          ops.push_back(pass);
          append_send(schedule, pass, ops);
        }
      }
    }
    schedule.ranks.push_back(ops);
  }
  return schedule;
}

SlotMap slots_in_turn(const Schedule& schedule, const std::vector<int>& num_slots) {
  SlotMap map{.num_slots = num_slots};
  map.slots.assign(index(schedule.num_stages()),
                   std::vector<int>(index(schedule.num_micro_batches), 0));
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    int passes = 0;
    for (const Op& op : schedule.ranks[rank]) {
      if (op.kind == OpKind::forward) {
        map.slots[index(op.chunk)][index(op.micro_batch)] = passes++ % num_slots[rank];
      }
    }
  }
  return map;
}

}  // namespace slackline::schedule
