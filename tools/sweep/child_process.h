#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace slackline {

inline constexpr int kEndedBySignal = 128;  // as shells say it

struct ChildCommand {
  std::vector<std::string> words{};  // program and arguments; PATH is searched for the program
  int out = -1;                      // descriptors that become its standard output and error;
  int error = -1;                    // its standard input is empty
  int stop_signal = 0;               // what asks it to end
};

// A program that runs beside this one, in a process group of its own: what a terminal sends to this
// program does not reach it. It is asked to end when this process ends for whatever reason, SIGKILL
// included, and when this object is destroyed.
class ChildProcess {
 public:
  // A program that cannot be started ends with 127 and says so on its standard error.
  // REQUIRES: words is not empty; this process has no threads.
  explicit ChildProcess(ChildCommand command);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void ask_to_end() const;

  // Once it has ended: its exit status, or kEndedBySignal + the signal that ended it. Does not
  // wait.
  [[nodiscard]] std::optional<int> exit_code();

 private:
  // Runs in the child, with the signals that its parent had blocked.
  [[noreturn]] void become(pid_t parent, const sigset_t& mask);

  ChildCommand command_;
  pid_t id_ = 0;
  std::optional<int> exit_code_{};
};

// The program as it would be started: with a slash a path, else a name in a directory of PATH.
[[nodiscard]] bool program_exists(const std::string& program);

}  // namespace slackline
