#include "core/comm/transport/emulated_transport.h"

namespace slackline {

namespace {

LinkModel::Passage passage_of(const Message& message) {
  return {.from = message.self,
          .to = message.peer,
          .bytes = static_cast<std::size_t>(message.carried_bytes())};
}

}  // namespace

void EmulatedTransport::post(const Message& message) {
  if (message.way == Message::Way::receive) {
    inner_->post(message);
    return;
  }
  // Even one that is due: another to the same rank may be, too, and goes first.
  on_the_way_.push({.due = model_.depart(passage_of(message), Clock::now()),
                    .order = num_sent_++,
                    .message = message});
}

// Its time is reckoned from when it was due here, however late this is called.
void EmulatedTransport::reach(OnTheWay sent) {
  sent.due = model_.arrive(passage_of(sent.message), sent.due);
  sent.arrives = true;
  on_the_way_.push(sent);
}

bool EmulatedTransport::progress() {
  bool moved = false;
  while (!on_the_way_.empty() && on_the_way_.top().due <= Clock::now()) {
    const OnTheWay next = on_the_way_.top();
    on_the_way_.pop();
    if (next.arrives) {
      inner_->post(next.message);
      moved = true;
    } else {
      reach(next);
    }
  }
  return inner_->progress() || moved;
}

std::optional<Transport::Clock::time_point> EmulatedTransport::next_due() const {
  if (on_the_way_.empty()) {
    return {};
  }
  return on_the_way_.top().due;
}

}  // namespace slackline
