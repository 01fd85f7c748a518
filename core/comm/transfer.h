#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

namespace slackline {

// A transfer under way, as seen by the rank that submitted it. Until wait() returns, tensors it
// reads must not be written and tensors it writes must not be touched. Default-constructed: nothing
// is under way. Move-only; a handle that is destroyed early waits and logs what it could not throw.
class Transfer {
 public:
  // The work behind a handle; implemented by whoever moves the data.
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;  // throws CommError when the transfer failed

    // To be called, from any thread, when somebody begins to wait for it otherwise; may outlive the
    // state. Empty: nothing to tell.
    [[nodiscard]] virtual std::function<void()> wait_begins() const { return {}; }

    [[nodiscard]] virtual bool done() const = 0;
  };

  Transfer() = default;

  explicit Transfer(std::unique_ptr<State> state) : state_(std::move(state)) {}

  Transfer(Transfer&&) noexcept = default;
  Transfer& operator=(Transfer&& other) noexcept;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer();

  // Blocks until the data has arrived, or may be overwritten where it was sent. Of tensors of a
  // CUDA device it makes the compute stream wait for that; where copies on the host are on the way,
  // it blocks unless streams wait (HostStaging::Waits). A second call returns at once.
  void wait();

  // Nothing was submitted, or it was waited for.
  [[nodiscard]] bool is_empty() const { return state_ == nullptr; }

  [[nodiscard]] bool done() const { return state_ == nullptr || state_->done(); }

  // Null where nothing is under way.
  [[nodiscard]] const State* state() const { return state_.get(); }

 private:
  std::unique_ptr<State> state_;
};

// Waits for each of them, in their order.
void wait_for_all(std::span<Transfer> transfers);

}  // namespace slackline
