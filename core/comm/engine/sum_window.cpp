#include "core/comm/engine/sum_window.h"

#include <limits>

#include "core/check.h"

namespace slackline {

std::size_t SumWindow::limit_of(std::size_t longest_message) {
  constexpr std::size_t kMessages = 128;
  return longest_message == 0 ? std::numeric_limits<std::size_t>::max()
                              : kMessages * longest_message;
}

SumWindow::Ticket SumWindow::add(std::size_t bytes) {
  sums_.push_back({.bytes = bytes});
  begin_more();
  return oldest_ + sums_.size() - 1;
}

void SumWindow::end(Ticket sum) {
  SL_CHECK(oldest_ <= sum && may_begin(sum), "the end of a sum that has not begun");
  sums_[sum - oldest_].ended = true;
  while (!sums_.empty() && sums_.front().ended) {
    begun_bytes_ -= sums_.front().bytes;
    sums_.pop_front();
    ++oldest_;
  }
  begin_more();
}

void SumWindow::begin_more() {
  while (end_of_begun_ < oldest_ + sums_.size() &&
         (end_of_begun_ < oldest_ + kAtOnce || begun_bytes_ < limit_)) {
    begun_bytes_ += sums_[end_of_begun_ - oldest_].bytes;
    ++end_of_begun_;
  }
}

}  // namespace slackline
