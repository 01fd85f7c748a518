#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "core/comm/transport.h"

namespace slackline {

// Sends that give way: from one rank to another at most kAtOnce of them are under way, those of the
// oldest operation first, and a rank begins none while a message that the step waits for is on its
// way from it; for links share their speed evenly among what they carry. Engine's thread.
class BackgroundSends {
 public:
  using Clock = Transport::Clock;

  // One would leave the link idle between a message's end and the next one's start.
  static constexpr int kAtOnce = 2;
  // A message under way for longer waits for its receiver; it does not hold up the others.
  static constexpr std::chrono::milliseconds kLongestHold{1000};

  // `operation` numbers operations in order of submission.
  void add(const Message& message, std::uint64_t operation);

  // One that may go; it counts as under way until done(). Empty: none for now.
  [[nodiscard]] std::optional<Message> next(Clock::time_point now);

  void done(const Message& message);

  // Around a message that the others give way to.
  void begin_urgent(const Message& message, Clock::time_point now);
  void end_urgent(const Message& message);

  void clear();

 private:
  struct Line {                                                          // from one rank to another
    std::map<std::pair<std::uint64_t, std::size_t>, Message> waiting{};  // operation, piece
    int under_way = 0;
  };

  struct Urgent {  // under way from a rank
    int count = 0;
    Clock::time_point since{};  // the first of them
  };

  [[nodiscard]] bool held(int rank, Clock::time_point now) const;

  std::map<std::pair<int, int>, Line> lines_{};
  std::map<int, Urgent> urgent_{};
};

}  // namespace slackline
