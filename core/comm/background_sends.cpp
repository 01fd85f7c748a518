#include "core/comm/background_sends.h"

#include "core/check.h"

namespace slackline {

void BackgroundSends::add(const Message& message, std::uint64_t operation) {
  Line& line = lines_[{message.self, message.peer}];
  const bool added = line.waiting.try_emplace({operation, message.piece}, message).second;
  SL_CHECK(added, "a piece of an operation waits twice");
}

std::optional<Message> BackgroundSends::next(Clock::time_point now) {
  for (auto& [ends, line] : lines_) {
    if (line.under_way < kAtOnce && !line.waiting.empty() && !held(ends.first, now)) {
      ++line.under_way;
      return line.waiting.extract(line.waiting.begin()).mapped();
    }
  }
  return {};
}

bool BackgroundSends::held(int rank, Clock::time_point now) const {
  const auto found = urgent_.find(rank);
  return found != urgent_.end() && found->second.count > 0 &&
         now - found->second.since < kLongestHold;
}

void BackgroundSends::done(const Message& message) {
  --lines_.at({message.self, message.peer}).under_way;
}

void BackgroundSends::begin_urgent(const Message& message, Clock::time_point now) {
  Urgent& urgent = urgent_[message.self];
  if (urgent.count++ == 0) {
    urgent.since = now;
  }
}

void BackgroundSends::end_urgent(const Message& message) {
  --urgent_.at(message.self).count;
}

void BackgroundSends::clear() {
  lines_.clear();
  urgent_.clear();
}

}  // namespace slackline
