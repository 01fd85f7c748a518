#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/comm/transport.h"

namespace slackline {

// Sends that give way: from one rank to another at most kAtOnce of them are under way, those of the
// oldest operation first, and a rank begins none while a message that the step waits for is on its
// way from it; for links share their speed evenly among what they carry. Both hold for what moves:
// a send that takes much longer waits for its receiver, and counts no more. Engine's thread.
class BackgroundSends {
 public:
  using Clock = Transport::Clock;

  // One would leave the link idle between a message's end and the next one's start.
  static constexpr int kAtOnce = 2;
  // What a send is given before it counts as one that waits.
  static constexpr std::chrono::seconds kPatience{1};
  static constexpr double kSlowLink = 1e6;  // bytes a second, and the time of its bytes at this

  // `operation` numbers operations in order of submission.
  void add(const Message& message, std::uint64_t operation);

  // One that may go, the oldest first; it counts as under way until done(). Empty: none for now.
  [[nodiscard]] std::optional<Message> next(Clock::time_point now);

  void done(const Message& message);

  // Around a message that the others give way to.
  void begin_urgent(const Message& message, Clock::time_point now);
  void end_urgent(const Message& message);

  void clear();

 private:
  using Key = std::pair<std::uint64_t, std::size_t>;  // operation, piece
  using Ends = std::pair<int, int>;                   // ranks, from and to

  struct Line {
    std::map<Key, Message> waiting{};
    std::deque<Clock::time_point> under_way{};  // until when each of them counts
  };

  struct Urgent {
    Message message{};
    Clock::time_point counts_until{};
  };

  [[nodiscard]] static Clock::time_point counts_until(const Message& message,
                                                      Clock::time_point begin);
  [[nodiscard]] bool held(int rank, Clock::time_point now) const;

  std::map<Ends, Line> lines_{};
  std::map<int, std::vector<Urgent>> urgent_{};  // under way, by rank
};

}  // namespace slackline
