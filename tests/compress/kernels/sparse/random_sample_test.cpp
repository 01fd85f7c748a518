#include "compress/kernels/sparse/random_sample.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/random_permutation.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

constexpr PhiloxKey kKey = {0x12345678, 0x9abcdef0};

std::vector<std::uint32_t> sample(StreamView stream, std::size_t n, std::size_t k) {
  const Shape row{static_cast<std::int64_t>(k)};
  GuardedTensor indices(DType::i32, row);  // no test writes u32 tensors
  const Tensor view(indices.view().raw(), DType::u32, row);
  random_sample(stream, {.key = kKey}, n, view);
  stream.synchronize();
  REQUIRE(indices.sentinels_intact());
  const auto span = view.span<std::uint32_t>();
  return {span.begin(), span.end()};
}

}  // namespace

TEST_CASE("a random sample is the permutation's first images") {
  Stream stream(test_stream(2));
  for (const std::size_t n : {std::size_t{1},
                              std::size_t{2},
                              std::size_t{3},
                              std::size_t{16},
                              std::size_t{63},
                              std::size_t{64},
                              std::size_t{65},
                              std::size_t{257},
                              std::size_t{1009},
                              std::size_t{65536},
                              std::size_t{100003},
                              std::size_t{0xffffffff}}) {
    const RandomPermutation permutation(kKey, n);
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}, n / 3, n}) {
      const std::size_t count = std::min<std::size_t>(k, 100003);
      std::vector<std::uint32_t> expected;
      expected.reserve(count);
      for (std::size_t x = 0; x < count; ++x) {
        expected.push_back(permutation(static_cast<std::uint32_t>(x)));
      }
      INFO(count << " of " << n);
      REQUIRE(sample(stream, n, count) == expected);
    }
  }
}

TEST_CASE("a random sample may be the one that a message names") {
  Stream stream(test_stream(2));
  constexpr PhiloxBlock kWords = {7, 0xffffffff, 3, 0x80000000};
  const PhiloxBlock mixed = philox(kKey, kWords);
  const RandomPermutation permutation({mixed[0], mixed[1]}, 1009);
  for (const std::int64_t offset : {0, 1, 3}) {
    GuardedTensor message(DType::u8, {offset + 16});
    const Tensor words = message.view().rows(offset, offset + 16);
    std::memcpy(words.raw(), kWords.data(), sizeof(kWords));
    GuardedTensor indices(DType::i32, {500});
    const Tensor view(indices.view().raw(), DType::u32, {500});
    random_sample(stream, {.key = kKey, .words = words}, 1009, view);
    stream.synchronize();
    const auto span = view.span<std::uint32_t>();
    for (std::uint32_t x = 0; x < span.size(); ++x) {
      REQUIRE(span[x] == permutation(x));
    }
  }
}

TEST_CASE("a random sample does not repeat") {
  Stream stream(test_stream(2));
  std::vector<std::uint32_t> indices = sample(stream, 1000003, 200000);
  std::sort(indices.begin(), indices.end());
  REQUIRE(std::adjacent_find(indices.begin(), indices.end()) == indices.end());
  REQUIRE(indices.back() < 1000003);
}

TEST_CASE("a random sample has the same bits for any number of threads") {
  require_same_bits_for_any_thread_count(0, [](StreamView stream) {
    const std::vector<std::uint32_t> indices = sample(stream, 300007, 100001);
    const auto bytes = std::as_bytes(std::span(indices));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  });
}

TEST_CASE("a random sample is not larger than what it is drawn from") {
  Stream stream(test_stream(1));
  REQUIRE_THROWS_WITH(sample(stream, 3, 4), Catch::Contains("a sample of 4 of 3"));
  REQUIRE_THROWS_WITH(sample(stream, std::size_t{1} << 32U, 4),
                      Catch::Contains("a sample of 4 of 4294967296"));
}

}  // namespace slackline::testing
