#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "core/kernels/matmul/matmul.h"
#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"
#include "core/tensor/stream_times.h"
#include "core/tensor/tensor.h"

namespace slackline {

// Device memory from which tensors are taken in turn, so that ops find none of theirs in the last
// cache. Normal numbers at first.
class DeviceRing {
 public:
  explicit DeviceRing(std::size_t bytes);

  // Valid until the ring has come round. As bf16 the upper halves of numbers are normal too, and
  // the lower ones finite. REQUIRES: it fits.
  [[nodiscard]] Tensor take(DType dtype, const Shape& shape);

 private:
  Buffer memory_;
  std::size_t used_ = 0;
};

// Times ops on CUDA streams by events, and prints a line for each beside what bounds it.
class DeviceTimer {
 public:
  struct Options {
    std::string only{};  // what a name has to contain to be timed
    int times = 9;
  };

  // What copies need is taken from the ring, which must outlive the timer.
  DeviceTimer(Options options, DeviceRing& ring);

  // The median, after one call that does not count.
  [[nodiscard]] double median_seconds(StreamView stream, const std::function<void()>& op);

  // Against a copy that moves as many bytes, measured right before each call of the op.
  void against_copy(StreamView stream,
                    const std::string& name,
                    double bytes,
                    const std::function<void()>& op);

  // Against the card's dense peak.
  void against_peak(StreamView stream,
                    const std::string& name,
                    DType dtype,
                    double flops,
                    const std::function<void()>& op);

  // A product against the best of 32 algorithms that cuBLASLt suggests for it. Prints nothing where
  // cuBLASLt is emulated.
  void against_suggestions(StreamView stream,
                           const std::string& name,
                           double flops,
                           const std::function<MatmulArgs()>& make_args);

 private:
  [[nodiscard]] bool leaves_out(const std::string& name) const;
  [[nodiscard]] double seconds(StreamView stream, const std::function<void()>& op);

  Options options_;
  DeviceRing* ring_;
  StreamTimes times_;
};

}  // namespace slackline
