#include "tools/record/progress_line.h"

#include <unistd.h>

#include <fmt/format.h>

#include "core/terminal.h"
#include "tools/record/metrics.h"

namespace slackline {

namespace {

constexpr std::chrono::milliseconds kInterval(200);

}  // namespace

ProgressLine::ProgressLine(std::string label, std::uint64_t total)
    : label_(std::move(label)), total_(total), terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (shown_) {
    erase_line(Output::error);
  }
}

void ProgressLine::update(std::uint64_t done) {
  const Clock::time_point now = Clock::now();
  if (!terminal_ || done == 0 || done > total_ || now - last_ < kInterval) {
    return;
  }
  last_ = now;
  shown_ = true;
  const double fraction = static_cast<double>(done) / static_cast<double>(total_);
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  redraw_line(Output::error,
              fmt::format("{} {:.1f} %, {} left",
                          label_,
                          100.0 * fraction,
                          duration_text(elapsed * (1.0 - fraction) / fraction)));
}

}  // namespace slackline
