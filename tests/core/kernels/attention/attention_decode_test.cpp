#include <algorithm>
#include <cmath>

#include "core/kernels/attention/attention.h"
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

TEST_CASE("keys and values of new tokens go to their rows of the cache, and nowhere else") {
  Stream stream(test_stream(2));

  struct Tokens {
    std::int64_t N, first, C;
  };

  for (const Tokens& tokens : {Tokens{1, 0, 1}, {0, 3, 5}, {1, 6, 33}, {5, 2, 30}, {7, 0, 700}}) {
    INFO(tokens.N << " tokens from " << tokens.first << ", " << tokens.C << " channels");
    const Shape cache{7, tokens.C};
    GuardedTensor qkv = random_tensor(DType::f32, {tokens.N, 3 * tokens.C}, {.seed = 1});
    GuardedTensor keys = random_tensor(DType::f32, cache, {.seed = 2});
    GuardedTensor values = random_tensor(DType::f32, cache, {.seed = 3});
    std::vector<double> expected_keys = keys.values();
    std::vector<double> expected_values = values.values();
    const std::vector<double> rows = qkv.values();
    for (std::int64_t i = 0; i < tokens.N * tokens.C; ++i) {
      const std::int64_t from = i / tokens.C * 3 * tokens.C + i % tokens.C;
      const auto to = static_cast<std::size_t>(tokens.first * tokens.C + i);
      expected_keys[to] = rows[static_cast<std::size_t>(from + tokens.C)];
      expected_values[to] = rows[static_cast<std::size_t>(from + 2 * tokens.C)];
    }
    cache_keys_values(stream, {.qkv = qkv, .keys = keys, .values = values, .first = tokens.first});
    REQUIRE(keys.values() == expected_keys);
    REQUIRE(values.values() == expected_values);
    REQUIRE(keys.sentinels_intact());
    REQUIRE(values.sentinels_intact());
  }
}

}  // namespace slackline::testing
