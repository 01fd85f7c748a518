#include "core/tensor/stream_times.h"

namespace slackline {

void StreamTimes::restart(StreamView stream, double now) {
  start_ = now;
  num_marks_ = 0;
  times_.clear();
  if (stream.device() != Device::cuda) {
    return;
  }
  if (first_ == nullptr) {
    first_ = std::make_unique<CudaEvent>(CudaEvent::Use::timing);
  }
  first_->record(stream.cuda());
}

std::size_t StreamTimes::mark(StreamView stream, double now) {
  if (first_ == nullptr) {
    times_.push_back(now);
    return times_.size() - 1;
  }
  if (num_marks_ == events_.size()) {
    events_.push_back(std::make_unique<CudaEvent>(CudaEvent::Use::timing));
  }
  events_[num_marks_]->record(stream.cuda());
  return num_marks_++;
}

void StreamTimes::align(std::size_t mark, double now) {
  if (first_ != nullptr) {
    start_ = now - events_.at(mark)->seconds_since(*first_);
  }
}

double StreamTimes::seconds(std::size_t mark) const {
  return first_ == nullptr ? times_.at(mark) : start_ + events_.at(mark)->seconds_since(*first_);
}

}  // namespace slackline
