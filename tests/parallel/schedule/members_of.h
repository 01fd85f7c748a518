#pragma once

#include <cstddef>
#include <vector>

#include "parallel/schedule/transfer_class.h"

namespace slackline::schedule {

// The transfers of a class, in the order they are sent. REQUIRES: a pipeline site.
[[nodiscard]] inline std::vector<TransferId> members_of(const Schedule& schedule,
                                                        const TransferClass& wanted) {
  std::vector<TransferId> members;
  const std::vector<Op>& ops =
      schedule.ranks[static_cast<std::size_t>(schedule.rank_of(wanted.stage))];
  const std::vector<Phase> phases = phases_of(ops);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (is_send(ops[i].kind) && ops[i].chunk == wanted.stage && phases[i] == wanted.phase &&
        id_of_send(ops[i]).site == wanted.site) {
      members.push_back(id_of_send(ops[i]));
    }
  }
  return members;
}

}  // namespace slackline::schedule
