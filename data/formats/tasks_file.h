#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace slackline {

// One line of a tasks file: a text and what may follow it.
//
//   {"context": "...", "choices": ["...", "..."], "answer": 1}    which of these does
//   {"context": "...", "target": "..."}                           the one that does
//
// Other keys are passed over, as data sets carry numbers and sources along.
struct Task {
  std::string context{};
  std::vector<std::string> choices{};  // two or more with an answer, else the target alone
  std::optional<std::size_t> answer{};
  std::uint64_t line = 0;  // of the file, from 1
};

// Reads all tasks of a file in UTF-8. Empty lines are none. Throws FileError, with path and line,
// at the first that is no task, and where there is none.
[[nodiscard]] std::vector<Task> read_tasks(const std::string& path);

}  // namespace slackline
