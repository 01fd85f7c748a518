#include "core/comm/transport/local_transport.h"

#include <cstring>

#include "core/check.h"

namespace slackline {

LocalTransport::Key LocalTransport::key_of(const Message& message) {
  const bool sends = message.way == Message::Way::send;
  const auto from = static_cast<std::uint64_t>(sends ? message.self : message.peer);
  const auto to = static_cast<std::uint64_t>(sends ? message.peer : message.self);
  const std::uint64_t place = (static_cast<std::uint64_t>(message.communicator) << 40U) |
                              (static_cast<std::uint64_t>(message.sequence) << 8U) |
                              static_cast<std::uint64_t>(message.lane);
  return {(from << 32U) | to, place};
}

void LocalTransport::post(const Message& message) {
  const auto entry = unmatched_.try_emplace(key_of(message)).first;
  std::deque<Message>& waiting = entry->second;
  if (waiting.empty() || waiting.front().way == message.way) {
    waiting.push_back(message);
    return;
  }
  const Message other = waiting.front();
  SL_CHECK_EQ(other.bytes, message.bytes);
  waiting.pop_front();
  if (waiting.empty()) {
    unmatched_.erase(entry);
  }
  const bool sends = message.way == Message::Way::send;
  if (message.bytes > 0) {
    std::memcpy(
        sends ? other.data : message.data, sends ? message.data : other.data, message.bytes);
  }
  listener_.message_done(other);
  listener_.message_done(message);
}

}  // namespace slackline
