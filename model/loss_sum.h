#pragma once

#include <cstddef>
#include <vector>

#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// The sum of the losses of all tokens that have been added since the last take(), in double: those
// of one call in token order, then calls in their order. On the CUDA device nothing waits before
// take(): losses go to the host as the stream makes them.
class LossSum {
 public:
  // (N) f32, which may change once the stream has come by.
  void add(StreamView stream, const Tensor& losses);

  // Places of calls since the last take() whose losses are on their way to the host. Who has the
  // same copies queued again, without add(), says so; who found that none were, takes calls back.
  [[nodiscard]] std::size_t num_pending() const { return num_copied_; }

  void expect_again(std::size_t places) { num_copied_ += places; }

  void forget_since(std::size_t pending) { num_copied_ = pending; }

  // Waits for the stream, which is the one of the calls.
  [[nodiscard]] double take(StreamView stream);

 private:
  struct Copied {
    Buffer memory;  // pinned
    std::size_t count = 0;
  };

  double sum_ = 0.0;  // what the host has seen
  std::vector<Copied> copied_;
  std::size_t num_copied_ = 0;  // of copied_, since the last take()
};

}  // namespace slackline
