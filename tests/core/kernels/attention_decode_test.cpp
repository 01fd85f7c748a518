#include <algorithm>
#include <cmath>

#include "core/kernels/attention.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

struct Size {
  std::int64_t B, H, D, length;
};

// The mean of the values that count, weighted by the softmax of the scores.
std::vector<double> attended(const Size& size,
                             std::int64_t capacity,
                             const std::vector<double>& query,
                             const std::vector<double>& keys,
                             const std::vector<double>& values) {
  std::vector<double> output(query.size());
  const std::int64_t C = size.H * size.D;
  for (std::int64_t head = 0; head < size.B * size.H; ++head) {
    const std::int64_t column = head % size.H * size.D;
    const std::int64_t own = head / size.H * C + column;
    const std::int64_t cached = head / size.H * capacity * C + column;
    std::vector<double> weights;
    for (std::int64_t t = 0; t < size.length; ++t) {
      double score = 0.0;
      for (std::int64_t d = 0; d < size.D; ++d) {
        score += query[static_cast<std::size_t>(own + d)] *
                 keys[static_cast<std::size_t>(cached + t * C + d)];
      }
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(size.D))));
    }
    double total = 0.0;
    for (std::int64_t t = 0; t < size.length; ++t) {
      const double weight = weights[static_cast<std::size_t>(t)];
      total += weight;
      for (std::int64_t d = 0; d < size.D; ++d) {
        output[static_cast<std::size_t>(own + d)] +=
            weight * values[static_cast<std::size_t>(cached + t * C + d)];
      }
    }
    for (std::int64_t d = 0; d < size.D; ++d) {
      output[static_cast<std::size_t>(own + d)] /= total;
    }
  }
  return output;
}

}  // namespace

TEST_CASE("a query attends to the positions that count, whatever lies behind them") {
  Stream stream(test_stream(2));
  for (const Size& size : {Size{1, 1, 1, 1},
                           {2, 3, 5, 3},
                           {1, 2, 33, 65},
                           {2, 2, 64, 100},
                           {1, 2, 128, 257},
                           {1, 1, 200, 40}}) {
    INFO(size.B << " x " << size.H << " heads of " << size.D << ", " << size.length);
    const std::int64_t C = size.H * size.D;
    const std::int64_t capacity = size.length + 3;
    GuardedTensor query = random_tensor(DType::f32, {size.B, C}, {.seed = 1, .deviation = 2.0});
    GuardedTensor keys = random_tensor(DType::f32, {size.B, capacity, C}, {.seed = 2});
    GuardedTensor values = random_tensor(DType::f32, {size.B, capacity, C}, {.seed = 3});
    const std::vector<double> expected =
        attended(size, capacity, query.values(), keys.values(), values.values());
    for (GuardedTensor* cache : {&keys, &values}) {
      std::vector<double> poisoned = cache->values();
      for (std::size_t i = 0; i < poisoned.size(); ++i) {
        const auto position = static_cast<std::int64_t>(i) / C % capacity;
        poisoned[i] = position < size.length ? poisoned[i] : NAN;
      }
      cache->set(poisoned);
    }
    GuardedTensor output(DType::f32, {size.B, C});
    attention_decode(stream,
                     {.query = query,
                      .keys = keys,
                      .values = values,
                      .output = output,
                      .num_heads = static_cast<int>(size.H),
                      .length = size.length});
    // Scores of order 2 are off by a few 1e-7, and so are the weights, relatively.
    REQUIRE(worst_mismatch(output.values(), expected, {.relative = 4e-6, .absolute = 4e-6}) == "");
    REQUIRE(output.sentinels_intact());
  }
}

}  // namespace slackline::testing
