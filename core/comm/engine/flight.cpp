#include "core/comm/engine/flight.h"

#include <algorithm>

#include "core/joined_text.h"

namespace slackline {

std::string Flight::describe() const {
  std::string text = "world rank " + std::to_string(group->world_rank());
  text += " (axis " + group->axis + ", rank " + std::to_string(group->rank) + " of " +
          std::to_string(group->members.size()) + "): " + name_of(record.kind);
  if (record.kind == TransferRecord::Kind::send) {
    text += " to rank " + std::to_string(record.peer);
  }
  if (record.kind == TransferRecord::Kind::receive) {
    text += " from rank " + std::to_string(record.peer);
  }
  if (record.note.what[0] != '\0') {
    text += " of ";
    text += record.note.what;
  }
  if (record.note.stage >= 0) {
    text += ", stage " + std::to_string(record.note.stage);
  }
  if (record.note.micro_batch >= 0) {
    text += ", micro-batch " + std::to_string(record.note.micro_batch);
  }
  return text;
}

std::string Flight::missing_peers() const {
  std::vector<int> ranks;
  if (stage == Stage::receiving && step < moves.steps.size()) {
    for (const Piece& piece : moves.steps[step].pieces) {
      if (!piece.done) {
        ranks.push_back(group->members[static_cast<std::size_t>(piece.peer)]);
      }
    }
  }
  if (ranks.empty()) {
    return "";
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ", waiting for world rank" + std::string(ranks.size() == 1 ? " " : "s ") +
         joined(ranks, ", ");
}

}  // namespace slackline
