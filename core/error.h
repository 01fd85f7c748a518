#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace slackline {

// How a process ends. docs/errors.md says what an operator does for each.
enum class ExitCode : int {
  done = 0,
  bug = 1,
  config = 2,
  file = 3,
  device = 4,
  non_finite = 5,
  stopped = 6,
};

// A message of several lines that are all ours: a hint, a table, the message of another Error.
// Values from outside stand in it as shown_line() or shown_value() make them (core/shown_text.h).
struct Lines {
  std::string text;
};

// A message and, on a line of its own, what is likely to help. Each is one harmless line.
[[nodiscard]] Lines with_hint(const std::string& message, const std::string& hint);

// Base of every exception we throw. Thrown directly it means a bug of ours (see core/check.h). The
// message is kept as shown_line() makes it, so that whatever stands in it, it is one harmless line;
// a Lines keeps its line breaks.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::bug);
  explicit Error(const Lines& message, ExitCode code = ExitCode::bug);

  [[nodiscard]] ExitCode exit_code() const { return code_; }

 private:
  ExitCode code_;
};

// The user can mend it: command line or config. The message names the key (dotted path), the rule
// and what is allowed, and ends with the value given.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(message, ExitCode::config) {}

  explicit ConfigError(const Lines& message) : Error(message, ExitCode::config) {}
};

// A file is missing, corrupt, refused or cannot be written. The message starts with the path.
class FileError : public Error {
 public:
  explicit FileError(const std::string& message) : Error(message, ExitCode::file) {}

  explicit FileError(const Lines& message) : Error(message, ExitCode::file) {}
};

// A device call failed. The message holds the call and the library's own text.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message) : Error(message, ExitCode::device) {}

  explicit DeviceError(const Lines& message) : Error(message, ExitCode::device) {}
};

// A buffer found no memory, on the host or on a device. The message has the buffer's name and size,
// and what is held.
class OutOfMemoryError : public DeviceError {
 public:
  OutOfMemoryError(const Lines& message, std::size_t limit) : DeviceError(message), limit_(limit) {}

  // What there is surely memory for: all that is held, and what a device says is free.
  [[nodiscard]] std::size_t limit() const { return limit_; }

 private:
  std::size_t limit_;
};

// A rank failed, went away or stopped answering, or a transfer could not be done. The message names
// rank, operation, stage, micro-batch and peers, and the reason.
class CommError : public Error {
 public:
  explicit CommError(const std::string& message) : Error(message, ExitCode::device) {}
};

// Loss or gradient norm is not finite. Thrown before the update; names step and first bad tensor.
class NonFiniteError : public Error {
 public:
  explicit NonFiniteError(const std::string& message) : Error(message, ExitCode::non_finite) {}
};

// What all ranks of a run throw at the same point, after they have agreed that some or all of them
// cannot go on: they end by themselves, and one message is enough.
class AgreedError : public Error {
 public:
  using Error::Error;
};

}  // namespace slackline
