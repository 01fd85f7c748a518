#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace slackline {

// One line on standard error that is written over. Shows only where standard error is a terminal, a
// few times a second at most; gone when the object is.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  // Whether text would be seen, and the last one has stood long enough.
  [[nodiscard]] bool is_due() const;

  // REQUIRES: is_due().
  void show(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;

  bool terminal_;
  bool shown_ = false;
  Clock::time_point last_ = Clock::now();
};

// A status line of what is being done, how much of it is done and the time left.
class ProgressLine {
 public:
  // `label` says what is being done ("evaluating"), `total` how much there is (bytes, windows).
  ProgressLine(std::string label, std::uint64_t total) : label_(std::move(label)), total_(total) {}

  // Shows nothing where `done` exceeds the total: input whose size is not known.
  void update(std::uint64_t done);

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  std::uint64_t total_;
  Clock::time_point start_ = Clock::now();
  StatusLine line_{};
};

}  // namespace slackline
