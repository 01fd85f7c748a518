#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/tensor/stream.h"

namespace slackline {

// When a stream comes to points of its work, on a clock of the caller's: where ops have finished
// when a call returns, the time of the call.
class StreamTimes {
 public:
  // Forgets all marks. `now` is the clock's time. Where a stream's queue was not empty then, all
  // times are early by what it had to do, until align().
  void restart(StreamView stream, double now);

  // The stream has been synchronized right behind a mark, and `now` is the time.
  void align(std::size_t mark, double now);

  // What has been submitted by now. Returns the mark's number, from 0 on.
  [[nodiscard]] std::size_t mark(StreamView stream, double now);

  // REQUIRES: the stream has been synchronized since.
  [[nodiscard]] double seconds(std::size_t mark) const;

 private:
  double start_ = 0.0;
  std::unique_ptr<CudaEvent> first_{};                // null where ops do not queue
  std::vector<double> times_;                         // of marks, where they do not
  std::vector<std::unique_ptr<CudaEvent>> events_{};  // of marks, where they do; used again
  std::size_t num_marks_ = 0;
};

}  // namespace slackline
