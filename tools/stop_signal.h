#pragma once

#include <csignal>

namespace slackline {

// Turns SIGTERM, SIGINT and SIGUSR1 into a flag that the training loop polls, so that a run ends
// at a step's end with a checkpoint. A second SIGINT ends the process at once, as usual.
class StopSignal {
 public:
  // Installs the handlers; the destructor puts the old ones back. One at a time per process.
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The first signal that arrived, or 0.
  [[nodiscard]] static int received();

 private:
  struct sigaction old_terminate_ {};

  struct sigaction old_interrupt_ {};

  struct sigaction old_user_ {};
};

}  // namespace slackline
