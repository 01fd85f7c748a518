#include "compress/kernels/sparse/top_k.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/rehearsal_clock.h"
#include "core/rng.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::uint32_t key_of(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
}

// By a full sort: the indices of the k largest, ascending.
std::vector<std::uint32_t> sorted_top_k(const std::vector<float>& values, std::size_t k) {
  std::vector<std::uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return key_of(values[a]) > key_of(values[b]);
  });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

struct Selection {
  std::vector<std::uint32_t> indices{};
  std::vector<float> kept{};
};

Selection select(Stream& stream, const std::vector<float>& values, std::size_t k) {
  GuardedTensor input(DType::f32, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), input.view().data<float>());
  const std::vector<std::byte> before = input.bytes();
  const Shape row{static_cast<std::int64_t>(k)};
  // No test writes u32 tensors: i32 has the same size.
  GuardedTensor indices(DType::i32, row);
  GuardedTensor kept(DType::f32, row);
  const Tensor index_view(indices.view().raw(), DType::u32, row);
  top_k(stream, input, index_view, kept);
  stream.synchronize();
  REQUIRE(indices.sentinels_intact());
  REQUIRE(kept.sentinels_intact());
  REQUIRE(input.bytes() == before);
  REQUIRE(stream.workspace().mark() == 0);
  const auto index_span = index_view.span<std::uint32_t>();
  const auto kept_span = kept.view().span<float>();
  return {.indices = {index_span.begin(), index_span.end()},
          .kept = {kept_span.begin(), kept_span.end()}};
}

// Against the sort, with exactly the scratch that top_k asks for.
void require_as_sorted(const std::vector<float>& values, std::size_t k) {
  INFO(k << " of " << values.size());
  Stream stream(test_stream(2, top_k_workspace_bytes(values.size(), k, test_workers(2))));
  const Selection actual = select(stream, values, k);
  const std::vector<std::uint32_t> expected = sorted_top_k(values, k);
  REQUIRE(actual.indices == expected);
  bool all_equal = true;
  for (std::size_t i = 0; i < k; ++i) {
    all_equal = all_equal && std::bit_cast<std::uint32_t>(actual.kept[i]) ==
                                 std::bit_cast<std::uint32_t>(values[expected[i]]);
  }
  REQUIRE(all_equal);
}

std::vector<float> normal_floats(std::size_t count, std::uint64_t seed = 1) {
  const std::vector<double> values = random_values(count, {.seed = seed});
  return {values.begin(), values.end()};
}

// Some counts to keep of n, the smallest and largest among them.
std::vector<std::size_t> some_counts(std::size_t n) {
  std::vector<std::size_t> counts = {1, 2, n / 100, n / 3, n - 1, n};
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  std::erase_if(counts, [&](std::size_t k) { return k < 1 || k > n; });
  return counts;
}

}  // namespace

TEST_CASE("top_k keeps what a full sort puts first, at any size") {
  for (const std::size_t n :
       {1, 2, 3, 31, 32, 33, 100, 1000, 8191, 8192, 65535, 65536, 65537, 200003}) {
    const std::vector<float> values = normal_floats(n);
    for (const std::size_t k : some_counts(n)) {
      require_as_sorted(values, k);
    }
  }
}

TEST_CASE("top_k breaks ties by the lowest index, however many there are") {
  constexpr std::size_t kCount = 150000;
  for (const int num_levels : {1, 2, 3, 17}) {
    std::vector<float> values = normal_floats(kCount);
    for (float& value : values) {  // both signs of each level
      const float level = std::floor(std::abs(value) * static_cast<float>(num_levels));
      value = std::copysign(std::min(level, static_cast<float>(num_levels - 1)), value);
    }
    for (const std::size_t k : some_counts(kCount)) {
      require_as_sorted(values, k);
    }
  }
}

TEST_CASE("top_k keeps zeros only where nothing else is left") {
  constexpr std::size_t kCount = 200000;
  for (const std::size_t num_others : {std::size_t{0}, std::size_t{1}, std::size_t{1500}}) {
    std::vector<float> values(kCount, 0.0F);
    for (std::size_t i = 0; i < num_others; ++i) {
      values[kCount - 1 - 7 * i] = i % 2 == 0 ? 1e-30F : -2.0F;
    }
    for (const std::size_t k : {std::size_t{1}, std::size_t{1499}, std::size_t{1501}, kCount / 2}) {
      require_as_sorted(values, k);
    }
  }
}

TEST_CASE("top_k takes sorted and clustered values") {
  constexpr std::size_t kCount = 300000;
  std::vector<float> ascending(kCount);
  std::iota(ascending.begin(), ascending.end(), 1.0F);
  const std::vector<float> descending(ascending.rbegin(), ascending.rend());
  std::vector<float> columns = normal_floats(kCount);  // a column of 512 a thousand times larger
  std::vector<float> rows = normal_floats(kCount);     // all of the largest side by side
  for (std::size_t i = 0; i < kCount; ++i) {
    columns[i] *= i % 512 == 3 ? 1000.0F : 1.0F;
    rows[i] *= i / 3000 == 40 ? 1000.0F : 1.0F;
  }
  for (const std::size_t k : some_counts(kCount)) {
    require_as_sorted(ascending, k);
    require_as_sorted(descending, k);
    require_as_sorted(columns, k);
    require_as_sorted(rows, k);
  }
}

TEST_CASE("top_k finds what its sample does not show") {
  // Spikes exactly where no sample is taken cannot be placed from outside, so: every value equal
  // but for so few that no sample of a hundredth part need meet them.
  constexpr std::size_t kCount = 500000;
  std::vector<float> values(kCount, -1.0F);
  for (std::size_t i = 0; i < 40; ++i) {
    values[12345 + 11113 * i] = 1.0F + static_cast<float>(i);
  }
  for (const std::size_t k : {1, 39, 40, 41, 5000}) {
    require_as_sorted(values, k);
  }
}

TEST_CASE("top_k keeps NaN and Inf before finite values") {
  std::vector<float> values = normal_floats(100000);
  values[99999] = -kInf;
  values[50] = kInf;
  values[70000] = std::nanf("");
  values[70001] = -std::nanf("7");
  values[3] = std::numeric_limits<float>::max();
  for (const std::size_t k : {1, 2, 3, 4, 5, 1000}) {
    require_as_sorted(values, k);
  }
  std::vector<float> all_bad(70000, std::nanf(""));
  require_as_sorted(all_bad, 700);
}

TEST_CASE("top_k tells denormals apart") {
  std::vector<float> values(20000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * 7919 % 20011));
  }
  require_as_sorted(values, 200);
}

TEST_CASE("top_k has the same bits for any number of threads") {
  for (const bool has_ties : {false, true}) {
    std::vector<float> values = normal_floats(400000);
    for (float& value : values) {
      value = has_ties ? std::round(value) : value;
    }
    require_same_bits_for_any_thread_count(
        top_k_workspace_bytes(values.size(), 4000, test_workers(3)), [&](Stream& stream) {
          const Selection selection = select(stream, values, 4000);
          const auto bytes = std::as_bytes(std::span(selection.indices));
          return std::vector<std::byte>(bytes.begin(), bytes.end());
        });
  }
}

TEST_CASE("top_k rounds to bf16 what it writes as bf16") {
  std::vector<float> values = normal_floats(30000);
  Stream stream(test_stream(2, top_k_workspace_bytes(values.size(), 300, test_workers(2))));
  GuardedTensor input(DType::f32, {30000});
  std::copy(values.begin(), values.end(), input.view().data<float>());
  GuardedTensor index_words(DType::i32, {300});
  const Tensor index_view(index_words.view().raw(), DType::u32, {300});
  GuardedTensor kept(DType::bf16, {300});
  top_k(stream, input, index_view, kept);
  stream.synchronize();
  const auto index_span = index_view.span<std::uint32_t>();
  const std::vector<std::uint32_t> indices(index_span.begin(), index_span.end());
  REQUIRE(indices == sorted_top_k(values, 300));
  REQUIRE(kept.sentinels_intact());
  std::vector<double> expected;
  expected.reserve(indices.size());
  for (const std::uint32_t index : indices) {
    expected.push_back(static_cast<float>(BFloat16(values[index])));
  }
  REQUIRE(kept.values() == expected);
}

TEST_CASE("top_k of nothing writes nothing") {
  Stream stream(test_stream(1));
  std::vector<float> values(5, 1.0F);
  REQUIRE(select(stream, values, 0).indices.empty());
  REQUIRE(select(stream, {}, 0).indices.empty());
}

TEST_CASE("top_k refuses what does not fit") {
  Stream stream(test_stream(1));
  float value = 0.0F;
  std::uint32_t index = 0;
  const Tensor one(&value, DType::f32, {1});
  const Tensor index_of_one(&index, DType::u32, {1});
  REQUIRE_THROWS_WITH(top_k(stream, one, Tensor(&index, DType::u32, {2}), one),
                      Catch::Contains("top_k kept is f32 (1), due is f32 (2)"));
  REQUIRE_THROWS_WITH(top_k(stream, one, Tensor(&value, DType::i32, {1}), one),
                      Catch::Contains("top_k indices is i32 (1), due is u32 (1)"));
  const Tensor huge(&value, DType::f32, {std::int64_t{1} << 32});
  REQUIRE_THROWS_WITH(top_k(stream, huge, index_of_one, one),
                      Catch::Contains("top_k of 1 of 4294967296 elements"));
}

TEST_CASE("top_k's scratch is small where little is kept") {
  // A few candidates for each element that is kept, a fixed amount for each thread.
  constexpr std::size_t kCount = 124'000'000;
  REQUIRE(top_k_workspace_bytes(kCount, kCount / 100, test_workers(2)) <
          kCount * sizeof(float) / 15);
  const std::size_t for_all = top_k_workspace_bytes(kCount, kCount, test_workers());
  if (test_device() == Device::cpu) {
    REQUIRE(for_all >= kCount * 2 * sizeof(std::uint32_t));
  } else {  // looks at the values themselves
    REQUIRE(for_all < kCount * sizeof(float) / 100);
  }
}

}  // namespace slackline::testing
