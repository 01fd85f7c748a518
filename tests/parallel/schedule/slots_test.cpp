#include "parallel/schedule/slots.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "tests/parallel/schedule/every_schedule.h"
#include "tests/support/catch.h"

namespace slackline::schedule::testing {

TEST_CASE("no slot is used by two micro-batches at once") {
  for_every_schedule({.ranks = 5, .micro_batches = 10, .chunks = 3}, [](const Schedule& schedule) {
    const SlotMap map = input_slots(schedule);
    for (const std::vector<Op>& ops : schedule.ranks) {
      std::map<int, std::pair<int, int>> users;  // chunk and micro-batch in each slot
      bool clash = false;
      for (const Op& op : ops) {
        const int slot = map.slot_of(op.chunk, op.micro_batch);
        if (op.kind == OpKind::receive_forward || op.kind == OpKind::forward) {
          const std::pair<int, int> user{op.chunk, op.micro_batch};
          clash = clash || users.emplace(slot, user).first->second != user;
        } else if (ends_activations(op.kind)) {
          users.erase(slot);
        }
      }
      CHECK_FALSE(clash);
      CHECK(users.empty());
    }
  });
}

TEST_CASE("early receives take one input slot more than activations, and waited ones none") {
  const ScheduleOptions early{.num_ranks = 4, .num_micro_batches = 8};
  const SlotMap inputs = input_slots(make_schedule(Kind::one_f_one_b, early));
  CHECK(inputs.num_slots == std::vector<int>{4, 4, 3, 2});
  ScheduleOptions waited = early;
  waited.transfers = Transfers::blocking;
  CHECK(input_slots(make_schedule(Kind::one_f_one_b, waited)).num_slots ==
        std::vector<int>{4, 3, 2, 1});
}

TEST_CASE("interleaved ranks that wait take a slot again only after the wait that ends its sends") {
  // Posting a receive waits for what its slot sent; in a ring each rank waited for the next.
  const Schedule schedule = make_schedule(
      Kind::interleaved,
      {.num_ranks = 4, .num_chunks = 2, .num_micro_batches = 8, .transfers = Transfers::blocking});
  const SlotMap map = input_slots(schedule);
  for (const std::vector<Op>& ops : schedule.ranks) {
    std::set<int> unsent;  // slots whose micro-batch has ended since the last wait
    bool early = false;
    for (const Op& op : ops) {
      if (op.kind == OpKind::wait) {
        unsent.clear();
        continue;
      }
      const int slot = map.slot_of(op.chunk, op.micro_batch);
      early = early || (op.kind == OpKind::receive_forward && unsent.count(slot) > 0);
      if (ends_activations(op.kind)) {
        unsent.insert(slot);
      }
    }
    CHECK_FALSE(early);
  }
}

}  // namespace slackline::schedule::testing
