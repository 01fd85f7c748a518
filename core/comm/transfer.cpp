#include "core/comm/transfer.h"

#include <exception>
#include <utility>

#include "core/log.h"

namespace slackline {

namespace {

void wait_and_log(std::unique_ptr<Transfer::State>& state) {
  if (state == nullptr) {
    return;
  }
  try {
    state->wait();
  } catch (const std::exception& error) {
    log_error(error.what());
  }
  state.reset();
}

}  // namespace

Transfer& Transfer::operator=(Transfer&& other) noexcept {
  if (this != &other) {
    wait_and_log(state_);
    state_ = std::move(other.state_);
  }
  return *this;
}

Transfer::~Transfer() {
  wait_and_log(state_);
}

void Transfer::wait() {
  if (const std::unique_ptr<State> state = std::move(state_); state != nullptr) {
    state->wait();
  }
}

}  // namespace slackline
