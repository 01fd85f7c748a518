#include "core/comm/emulated_transport.h"

namespace slackline {

void EmulatedTransport::post(const Message& message) {
  if (message.way == Message::Way::receive) {
    inner_->post(message);
    return;
  }
  const Clock::time_point arrival =
      model_.carry(message.self, message.peer, message.bytes, Clock::now());
  on_the_way_.push({arrival, num_sent_++, message});
}

bool EmulatedTransport::progress() {
  bool moved = false;
  while (!on_the_way_.empty() && on_the_way_.top().arrival <= Clock::now()) {
    const Message message = on_the_way_.top().message;
    on_the_way_.pop();
    inner_->post(message);
    moved = true;
  }
  return inner_->progress() || moved;
}

std::optional<Transport::Clock::time_point> EmulatedTransport::next_due() const {
  if (on_the_way_.empty()) {
    return {};
  }
  return on_the_way_.top().arrival;
}

}  // namespace slackline
