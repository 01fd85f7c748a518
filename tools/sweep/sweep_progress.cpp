#include "tools/sweep/sweep_progress.h"

#include <unistd.h>

#include <fmt/format.h>

#include "core/terminal.h"
#include "tools/record/metrics.h"

namespace slackline {

SweepProgress::SweepProgress(std::int64_t steps)
    : terminal_(isatty(STDERR_FILENO) == 1), left_(steps) {}

SweepProgress::~SweepProgress() {
  hide();
}

void SweepProgress::show(const std::string& label, std::int64_t steps) {
  redraw_line(Output::error, fmt::format("{}, {}", label, time_left(steps)));
  shown_ = true;
}

void SweepProgress::hide() {
  if (shown_) {
    erase_line(Output::error);
    shown_ = false;
  }
}

void SweepProgress::end_run(std::int64_t planned, std::int64_t done) {
  left_ -= planned;
  done_ += done;
}

std::string SweepProgress::time_left(std::int64_t steps_under_way) const {
  const std::int64_t done = done_ + steps_under_way;
  const std::int64_t left = left_ - steps_under_way;
  if (left > 0 && done <= 0) {
    return "time left unknown";
  }
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  const double pace = left > 0 ? elapsed / static_cast<double>(done) : 0.0;
  return fmt::format("{} left", duration_text(pace * static_cast<double>(left)));
}

}  // namespace slackline
