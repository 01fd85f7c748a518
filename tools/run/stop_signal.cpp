#include "tools/run/stop_signal.h"

#include <atomic>
#include <csignal>

namespace slackline {

namespace {

// A signal handler reaches nothing but globals; these are the one exception to the rule against
// them.
std::atomic<bool> any_came{false};
std::atomic<bool> end_came{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void note_signal(int number) {
  any_came = true;
  if (number == SIGTERM) {
    end_came = true;
  }
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

bool StopSignal::has_come() {
  return any_came;
}

bool StopSignal::is_told_to_end() {
  return end_came;
}

}  // namespace slackline
