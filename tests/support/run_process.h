#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

namespace slackline {

// What a program left when it ended.
struct ProcessResult {
  int exit_code = 0;  // 128 + signal when a signal ended it
  std::string out{};
  std::string error{};
  std::size_t peak_bytes = 0;  // the largest resident set it had
};

// A program under way, standard input empty. Killed, if it still runs, when this is destroyed.
class RunningProcess {
 public:
  // Throws Error when it cannot be started.
  RunningProcess(const std::string& program, const std::vector<std::string>& arguments);
  ~RunningProcess();
  RunningProcess(const RunningProcess&) = delete;
  RunningProcess& operator=(const RunningProcess&) = delete;

  [[nodiscard]] pid_t id() const { return id_; }

  // Waits for its end; once.
  [[nodiscard]] ProcessResult wait();

 private:
  struct Close {
    void operator()(std::FILE* file) const { static_cast<void>(std::fclose(file)); }
  };

  // Output goes to files without a name: no pipe fills up, however much a program prints.
  using TemporaryFile = std::unique_ptr<std::FILE, Close>;

  static std::string content(std::FILE* file);

  TemporaryFile out_;
  TemporaryFile error_;
  pid_t id_ = 0;  // 0 once it was waited for
};

// Runs a program to its end.
[[nodiscard]] ProcessResult run_process(const std::string& program,
                                        const std::vector<std::string>& arguments);

// The same for the project's own binary.
[[nodiscard]] ProcessResult run_slackline(const std::vector<std::string>& arguments);

}  // namespace slackline
