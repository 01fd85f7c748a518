#include "parallel/step/pass_graphs.h"

#include <functional>
#include <vector>

#include "core/kernels/elementwise/elementwise.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

using schedule::OpKind;

// Passes that copy x to y, and losses on their way to the host with it.
class Passes {
 public:
  // Makes a pass; `body` comes after its work.
  void run(
      const PassGraphs::Kind& kind, const std::function<void()>& body = [] {}) {
    const Pass pass{.stream = stream_, .sum = &sum_, .losses = &losses_};
    graphs_.run(kind, pass, [&] {
      ++num_bodies_;
      cast(stream_, x_, y_);
      losses_.add(stream_, y_);
      body();
    });
  }

  // Sums the losses of the passes since the last call, each of which copied `value` 8 times.
  [[nodiscard]] double losses() { return losses_.take(stream_); }

  void set(double value) {
    stream_.synchronize();
    x_.fill(value);
  }

  void synchronize() { stream_.synchronize(); }

  [[nodiscard]] int num_bodies() const { return num_bodies_; }

 private:
  Stream stream_{test_stream(1)};
  NoTensorSum sum_;
  LossSum losses_;
  PassGraphs graphs_;
  GuardedTensor x_{DType::f32, {8}};
  GuardedTensor y_{DType::f32, {8}};
  int num_bodies_ = 0;
};

PassGraphs::Kind forward(int micro_batch) {
  return {.op = {.kind = OpKind::forward, .micro_batch = micro_batch}};
}

}  // namespace

TEST_CASE("a pass runs, is captured, and is launched from then on, its losses with it") {
  Passes passes;
  for (const double value : {1.0, 2.0, 3.0, 4.0}) {
    passes.set(value);
    passes.run(forward(1));
    passes.run(forward(2));
    REQUIRE(passes.losses() == 16.0 * value);
  }
  REQUIRE(passes.num_bodies() == 4);  // two steps of two passes
  PassGraphs::Kind other = forward(1);
  other.scale = 0.5F;
  passes.run(other);
  REQUIRE(passes.losses() == 32.0);
  REQUIRE(passes.num_bodies() == 5);
}

TEST_CASE("a pass that CUDA refuses to capture runs as it is, and so does every other") {
  Passes passes;
  for (int step = 1; step <= 4; ++step) {
    passes.set(step);
    passes.run(forward(1), [&] { passes.synchronize(); });
    passes.run(forward(2));
    REQUIRE(passes.losses() == 16.0 * step);
  }
  REQUIRE(passes.num_bodies() == 9);  // one of them in vain
}

}  // namespace slackline::testing
