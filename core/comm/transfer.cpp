#include "core/comm/transfer.h"

#include <exception>
#include <string>

#include "core/log.h"

namespace slackline {

namespace {

void finish_quietly(std::unique_ptr<Transfer::State> state) {
  if (state == nullptr) {
    return;
  }
  try {
    state->wait();
  } catch (const std::exception& failure) {
    if (std::uncaught_exceptions() > 0) {
      return;  // the rank is on its way out already, and will say why
    }
    log_warning("a transfer nobody waited for failed: " + std::string(failure.what()));
  }
}

}  // namespace

Transfer& Transfer::operator=(Transfer&& other) noexcept {
  if (this != &other) {
    finish_quietly(std::exchange(state_, std::move(other.state_)));
  }
  return *this;
}

Transfer::~Transfer() {
  finish_quietly(std::move(state_));
}

void Transfer::wait() {
  if (state_ != nullptr) {
    const std::unique_ptr<State> state = std::move(state_);
    state->wait();
  }
}

void wait_for_all(std::span<Transfer> transfers) {
  for (Transfer& transfer : transfers) {
    transfer.wait();
  }
}

}  // namespace slackline
