#include "tools/stop_signal.h"

#include <atomic>

namespace slackline {

namespace {

// A signal handler reaches nothing but globals; this is the one exception to the rule against them.
std::atomic<int> received_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void note_signal(int number) {
  int none = 0;
  received_signal.compare_exchange_strong(none, number);
}

}  // namespace

StopSignal::StopSignal() {
  received_signal = 0;

  struct sigaction action {};

  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, &old_terminate_);
  sigaction(SIGUSR1, &action, &old_user_);
  action.sa_flags |= static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, &old_interrupt_);
}

StopSignal::~StopSignal() {
  sigaction(SIGTERM, &old_terminate_, nullptr);
  sigaction(SIGUSR1, &old_user_, nullptr);
  sigaction(SIGINT, &old_interrupt_, nullptr);
}

int StopSignal::received() {
  return received_signal;
}

}  // namespace slackline
