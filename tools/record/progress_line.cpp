#include "tools/record/progress_line.h"

#include <unistd.h>

#include <fmt/format.h>

#include "core/terminal.h"
#include "tools/record/metrics.h"

namespace slackline {

namespace {

constexpr std::chrono::milliseconds kInterval(200);

}  // namespace

StatusLine::StatusLine() : terminal_(isatty(STDERR_FILENO) == 1) {}

StatusLine::~StatusLine() {
  if (shown_) {
    erase_line(Output::error);
  }
}

bool StatusLine::is_due() const {
  return terminal_ && Clock::now() - last_ >= kInterval;
}

void StatusLine::show(const std::string& text) {
  redraw_line(Output::error, text);
  last_ = Clock::now();
  shown_ = true;
}

void ProgressLine::update(std::uint64_t done) {
  if (done == 0 || done > total_ || !line_.is_due()) {
    return;
  }
  const double fraction = static_cast<double>(done) / static_cast<double>(total_);
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  line_.show(fmt::format("{} {:.1f} %, {} left",
                         label_,
                         100.0 * fraction,
                         duration_text(elapsed * (1.0 - fraction) / fraction)));
}

}  // namespace slackline
