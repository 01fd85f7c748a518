#include "core/cuda/cuda_graph.h"

#include "core/error.h"
#include "core/kernels/elementwise/elementwise.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

TEST_CASE("a graph does what was captured as often as it is launched, and not before") {
  Stream stream(test_stream(1));
  GuardedTensor x(DType::f32, {1000});
  GuardedTensor y(DType::f32, {1000});
  x.fill(1.0);
  y.fill(0.0);
  const std::unique_ptr<CudaGraph> graph = CudaGraph::capture(stream.cuda(), [&] {
    cast(stream, x, y);
    fill_zero(stream, x);
  });
  REQUIRE(graph != nullptr);
  stream.synchronize();
  REQUIRE(y.values() == std::vector<double>(1000, 0.0));
  for (const double value : {1.0, 7.0}) {
    x.fill(value);
    graph->launch(stream.cuda());
    stream.synchronize();
    REQUIRE(y.values() == std::vector<double>(1000, value));
    REQUIRE(x.values() == std::vector<double>(1000, 0.0));
  }
}

TEST_CASE("work that waits for its stream cannot be captured, and leaves the stream in order") {
  Stream stream(test_stream(1));
  GuardedTensor x(DType::f32, {1000});
  GuardedTensor y(DType::f32, {1000});
  x.fill(1.0);
  REQUIRE(CudaGraph::capture(stream.cuda(), [&] {
            cast(stream, x, y);
            stream.synchronize();
          }) == nullptr);
  cast(stream, x, y);
  stream.synchronize();
  REQUIRE(y.values() == std::vector<double>(1000, 1.0));
}

TEST_CASE("work that waits for an event of another stream cannot be captured") {
  Stream stream(test_stream(1));
  Stream other(test_stream(1));
  GuardedTensor x(DType::f32, {1000});
  GuardedTensor y(DType::f32, {1000});
  CudaEvent outside;
  outside.record(other.cuda());
  REQUIRE(CudaGraph::capture(stream.cuda(), [&] {
            cast(stream, x, y);
            stream.cuda().follow(outside);
          }) == nullptr);
  // What is recorded in a capture happens when the graph runs: nobody else can wait for it.
  CudaEvent inside;
  const std::unique_ptr<CudaGraph> graph = CudaGraph::capture(stream.cuda(), [&] {
    cast(stream, x, y);
    inside.record(stream.cuda());
    stream.cuda().follow(inside);
  });
  REQUIRE(graph != nullptr);
  REQUIRE_THROWS_AS(inside.wait(), DeviceError);
  REQUIRE_THROWS_AS(static_cast<void>(inside.is_done()), DeviceError);
  REQUIRE_THROWS_AS(other.cuda().follow(inside), DeviceError);
}

}  // namespace slackline::testing
