#include "core/comm/background_sends.h"

#include "core/check.h"

namespace slackline {

void BackgroundSends::add(const Message& message, std::uint64_t operation) {
  const bool added =
      ranks_[message.self].waiting.try_emplace({operation, message.piece}, message).second;
  SL_CHECK(added, "a piece of an operation waits twice");
}

std::optional<Message> BackgroundSends::next() {
  for (auto& [rank, sends] : ranks_) {
    if (sends.under_way < kAtOnce && !sends.waiting.empty()) {
      ++sends.under_way;
      return sends.waiting.extract(sends.waiting.begin()).mapped();
    }
  }
  return {};
}

void BackgroundSends::done(const Message& message) {
  --ranks_.at(message.self).under_way;
}

}  // namespace slackline
