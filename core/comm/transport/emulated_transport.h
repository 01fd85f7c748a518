#pragma once

#include <cstdint>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "core/comm/links/link_model.h"
#include "core/comm/transport/transport.h"

namespace slackline {

// Another transport over the links of a cluster: the sender keeps a message back until it would
// have arrived, then it goes the real way. Approximations: the real way takes its time on top; a
// send ends when the message has arrived, not when it has left; a message's wire time begins when
// it is sent, whether or not its receive stands ready; links of a node that ranks of several hosts
// share are kept apart by host.
class EmulatedTransport final : public Transport {
 public:
  // `slots_owner` keeps the model's slots alive where this process alone uses them; may be null.
  EmulatedTransport(std::unique_ptr<Transport> inner,
                    LinkModel model,
                    std::unique_ptr<LinkModel::Slot[]> slots_owner)
      : inner_(std::move(inner)), slots_owner_(std::move(slots_owner)), model_(std::move(model)) {}

  void open_group(std::uint32_t id, const std::vector<int>& members) override {
    inner_->open_group(id, members);
  }

  void post(const Message& message) override;
  bool progress() override;

  [[nodiscard]] bool needs_polling() const override { return inner_->needs_polling(); }

  [[nodiscard]] std::optional<Clock::time_point> next_due() const override;

  void announce_failure(const std::string& reason) override { inner_->announce_failure(reason); }

  void close() override { inner_->close(); }

  void abort(int code) override { inner_->abort(code); }

 private:
  struct OnTheWay {
    Clock::time_point due{};  // at the receiver's end, or the arrival
    std::uint64_t order = 0;  // keeps messages due together in the order they were sent
    Message message{};
    bool arrives = false;

    bool operator>(const OnTheWay& other) const {
      return due != other.due ? due > other.due : order > other.order;
    }
  };

  void reach(OnTheWay sent);

  std::unique_ptr<Transport> inner_;
  std::unique_ptr<LinkModel::Slot[]> slots_owner_;
  LinkModel model_;
  std::priority_queue<OnTheWay, std::vector<OnTheWay>, std::greater<>> on_the_way_;
  std::uint64_t num_sent_ = 0;
};

}  // namespace slackline
