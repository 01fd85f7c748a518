#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace slackline {

// One line on standard error that is written over: what is being done, how much of it is done and
// the time left. Shows only where standard error is a terminal, a few times a second at most; gone
// when the object is.
class ProgressLine {
 public:
  // `label` says what is being done ("evaluating"), `total` how much there is (bytes, windows).
  ProgressLine(std::string label, std::uint64_t total);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Shows nothing where `done` exceeds the total: input whose size is not known.
  void update(std::uint64_t done);

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  std::uint64_t total_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

}  // namespace slackline
