#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace slackline {

// How far a sweep is, counted in steps over all its runs, and the time left at the pace since it
// was started. Where standard error is a terminal it has a line there that is written over.
class SweepProgress {
 public:
  // So many steps are to be done.
  explicit SweepProgress(std::int64_t steps);
  ~SweepProgress();
  SweepProgress(const SweepProgress&) = delete;
  SweepProgress& operator=(const SweepProgress&) = delete;

  [[nodiscard]] bool visible() const { return terminal_; }

  // Writes the line anew: the run under way has done so many steps since it was started.
  void show(const std::string& label, std::int64_t steps);

  // Takes the line away, so that another can be printed.
  void hide();

  // A run that was to do `planned` steps has ended after `done` of them.
  void end_run(std::int64_t planned, std::int64_t done);

  // "3m12s left"; says that it is unknown until a step is done.
  [[nodiscard]] std::string time_left(std::int64_t steps_under_way = 0) const;

 private:
  using Clock = std::chrono::steady_clock;

  bool terminal_;
  bool shown_ = false;
  std::int64_t left_;
  std::int64_t done_ = 0;
  Clock::time_point start_ = Clock::now();
};

}  // namespace slackline
