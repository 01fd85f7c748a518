#pragma once

namespace slackline {

// SIGTERM, SIGINT and SIGUSR1 as a flag that the training loop polls, so that a run ends at a
// step's end with a checkpoint. A second SIGINT ends the process at once, as usual.
class StopSignal {
 public:
  // Catches them for the rest of the process: once one rank has ended, a launcher sends SIGTERM to
  // the others, which must not lose their exit codes on their last instructions.
  static void install();

  // Whether one of them has arrived.
  [[nodiscard]] static bool has_come();

  // Whether SIGTERM was among them, by which a launcher ends a job.
  [[nodiscard]] static bool is_told_to_end();
};

}  // namespace slackline
