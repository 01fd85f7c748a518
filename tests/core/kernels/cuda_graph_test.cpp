#include "core/cuda/cuda_graph.h"

#include "core/kernels/elementwise.h"
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

}  // namespace slackline::testing
