#include "tools/run/stop_signal.h"

#include <atomic>
#include <csignal>

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

void StopSignal::install() {
  struct sigaction action {};

  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
  action.sa_flags |= static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

int StopSignal::received() {
  return received_signal;
}

}  // namespace slackline
