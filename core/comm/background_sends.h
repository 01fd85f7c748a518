#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "core/comm/transport.h"

namespace slackline {

// Sends that give way: each rank has at most kAtOnce of them under way, those of its oldest
// operation first, so that a message which the step waits for stands behind no more than these on
// its link. Engine's thread.
class BackgroundSends {
 public:
  // One would leave the link idle between a message's end and the next one's start.
  static constexpr int kAtOnce = 2;

  // `operation` numbers operations in order of submission.
  void add(const Message& message, std::uint64_t operation);

  // One that may go; it counts as under way until done(). Empty: none for now.
  [[nodiscard]] std::optional<Message> next();

  void done(const Message& message);

  void clear() { ranks_.clear(); }

 private:
  struct OfRank {
    std::map<std::pair<std::uint64_t, std::size_t>, Message> waiting{};  // operation, piece
    int under_way = 0;
  };

  std::map<int, OfRank> ranks_{};  // one of them but in a world of threads
};

}  // namespace slackline
