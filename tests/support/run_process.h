#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace slackline {

// What a program left when it ended.
struct ProcessResult {
  int exit_code = 0;  // 128 + signal when a signal ended it
  std::string out{};
  std::string error{};
  std::size_t peak_bytes = 0;  // the largest resident set it had
};

// Runs a program to its end with standard input empty. Throws Error when it cannot be started.
[[nodiscard]] ProcessResult run_process(const std::string& program,
                                        const std::vector<std::string>& arguments);

// The same for the project's own binary.
[[nodiscard]] ProcessResult run_slackline(const std::vector<std::string>& arguments);

}  // namespace slackline
