#include "compress/kernels/sparse/elias_fano.h"

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "core/rng.h"
#include "tests/core/kernels/index_tensor.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

using Words = std::vector<std::uint32_t>;

[[noreturn]] void raise(const DeviceFault& fault) {
  const auto& words = fault.words;
  throw CommError(std::to_string(words[0]) + " of " + std::to_string(words[1]) + ", tag " +
                  std::to_string(words[2]));
}

constexpr FaultNote kNote{.tag = 7, .raise = raise};

// k indices below n, spread unevenly: more of them in the first half.
Words some_indices(std::size_t n, std::size_t k) {
  const PhiloxKey key = philox_key(1, "indices");
  // Of nearly all, those that are left out are drawn: places that are free get rare.
  const bool draws_others = k > n / 2;
  std::vector<bool> taken(n);
  for (std::size_t count = 0, draw = 0; count < (draws_others ? n - k : k); ++draw) {
    const double u = uniform_number(key, draw);
    const auto at = static_cast<std::size_t>((draw % 3 == 0 ? u : u / 2) * static_cast<double>(n));
    // Draws meet taken places more and more often; the next free one will do.
    std::size_t free = at;
    while (taken[free]) {
      free = (free + 1) % n;
    }
    taken[free] = true;
    ++count;
  }
  Words indices;
  for (std::size_t i = 0; i < n; ++i) {
    if (taken[i] != draws_others) {
      indices.push_back(static_cast<std::uint32_t>(i));
    }
  }
  return indices;
}

// The code by its definition, a bit at a time.
Words expected_code(const Words& indices, std::size_t n) {
  const EliasFano code{.n = n, .k = indices.size()};
  Words words(code.words(), 0);
  const auto set = [&](std::size_t first_word, std::size_t bit) {
    words[first_word + bit / 32] |= 1U << bit % 32;
  };
  for (std::size_t j = 0; j < indices.size(); ++j) {
    set(0, (indices[j] >> code.low_bits()) + j);
    for (unsigned bit = 0; bit < code.low_bits(); ++bit) {
      if ((indices[j] >> bit & 1U) != 0) {
        set(code.upper_words(), j * code.low_bits() + bit);
      }
    }
  }
  return words;
}

Words words_of(const IndexTensor& tensor) {
  wait_for_test_device();
  const auto* first = tensor.view.data<std::uint32_t>();
  return {first, first + tensor.view.num_elements()};
}

Stream stream_for(const EliasFano& code, int num_threads = 2) {
  return Stream(test_stream(num_threads, elias_fano_workspace_bytes(code)));
}

Words encoded(const Words& indices, std::size_t n, int num_threads = 2) {
  const EliasFano code{.n = n, .k = indices.size()};
  Stream stream = stream_for(code, num_threads);
  const IndexTensor from(indices);
  const IndexTensor words(Words(code.words(), 0xabcdef01));
  elias_fano_encode(stream, from.view, n, words.view);
  stream.synchronize();
  REQUIRE(words.memory.sentinels_intact());
  return words_of(words);
}

Words decoded(const Words& words, std::size_t n, std::size_t k, int num_threads = 2) {
  Stream stream = stream_for({.n = n, .k = k}, num_threads);
  const IndexTensor from(words);
  const IndexTensor indices(Words(k, 12345));
  elias_fano_decode(stream, from.view, n, kNote, indices.view);
  stream.synchronize();
  REQUIRE(indices.memory.sentinels_intact());
  return words_of(indices);
}

void require_round_trip(const Words& indices, std::size_t n) {
  INFO(indices.size() << " below " << n);
  const Words words = encoded(indices, n);
  REQUIRE(words == expected_code(indices, n));
  REQUIRE(decoded(words, n, indices.size()) == indices);
}

}  // namespace

TEST_CASE("an Elias-Fano code has the words of its definition and gives the indices back") {
  for (const std::size_t n : {1U, 2U, 3U, 31U, 32U, 33U, 495U, 76800U}) {
    for (const std::size_t k : {std::size_t{1}, n / 100, n / 20, n / 3, n / 2, n - 1, n}) {
      if (k > 0) {
        require_round_trip(some_indices(n, k), n);
      }
    }
  }
}

TEST_CASE("an Elias-Fano code spans several tasks and uneven clusters") {
  // All indices at one end leave whole ranges of upper words empty.
  constexpr std::size_t kSize = 3'000'000;
  for (const std::uint32_t first : {0U, 2'900'000U}) {
    Words indices(100'000);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      indices[i] = first + static_cast<std::uint32_t>(i);
    }
    require_round_trip(indices, kSize);
  }
  require_round_trip(some_indices(kSize, 70'001), kSize);
}

TEST_CASE("an Elias-Fano code holds the largest index there is") {
  constexpr std::size_t kMost = 0xffffffff;
  require_round_trip({0xfffffffe}, kMost);
  require_round_trip({0, 0x7fffffff, 0x80000000, 0xfffffffd, 0xfffffffe}, kMost);
}

TEST_CASE("an Elias-Fano code has the same words for any number of threads") {
  const Words indices = some_indices(400'000, 50'000);
  const Words words = encoded(indices, 400'000, 1);
  for (const int num_threads : {2, 3}) {
    REQUIRE(encoded(indices, 400'000, num_threads) == words);
    REQUIRE(decoded(words, 400'000, 50'000, num_threads) == indices);
  }
}

TEST_CASE("the bytes of an Elias-Fano code follow from n and k") {
  // One of a hundred: six low bits, and 1 + 1/0.64 upper bits an index.
  constexpr EliasFano kCode{.n = 100'000, .k = 1000};
  STATIC_REQUIRE(kCode.low_bits() == 6);
  STATIC_REQUIRE(kCode.upper_words() == (1000 + 99'999 / 64 + 31) / 32);
  STATIC_REQUIRE(kCode.lower_words() == (6 * 1000 + 31) / 32);
  STATIC_REQUIRE(EliasFano{.n = 7, .k = 7}.words() == 1);
  STATIC_REQUIRE(EliasFano{.n = 7, .k = 0}.words() == 0);
}

TEST_CASE("an Elias-Fano code with too many or too few indices is told") {
  const std::size_t n = 200'000;
  const Words indices = some_indices(n, 20'000);
  const Words words = encoded(indices, n);
  const std::size_t upper = EliasFano{.n = n, .k = 20'000}.upper_words();
  for (const std::size_t at : {std::size_t{0}, upper / 2, upper - 1}) {
    Words more = words;
    const int before = std::popcount(more[at]);
    more[at] = ~0U;
    CHECK_THROWS_WITH(decoded(more, n, 20'000),
                      std::to_string(20'000 + 32 - before) + " of 20000, tag 7");
  }
  Words fewer = words;
  fewer[3] = 0;
  CHECK_THROWS_WITH(decoded(fewer, n, 20'000),
                    std::to_string(20'000 - std::popcount(words[3])) + " of 20000, tag 7");
  CHECK_THROWS_WITH(decoded(Words(words.size(), ~0U), n, 20'000),
                    std::to_string(32 * upper) + " of 20000, tag 7");
  CHECK_THROWS_WITH(decoded(Words(words.size(), 0), n, 20'000), "0 of 20000, tag 7");
}

TEST_CASE("an index beyond 32 bits of a damaged Elias-Fano code is the largest number") {
  // One index below 2^32 - 1 has 31 low bits and two places for its upper part; a bit behind them
  // would be four times 2^31.
  const Words words = {1U << 4, 5};
  REQUIRE(decoded(words, 0xffffffff, 1) == Words{0xffffffff});
}

TEST_CASE("Elias-Fano codes refuse tensors of other sizes") {
  Stream stream(test_stream(1, 4096));
  const IndexTensor indices(Words{1, 2, 3});
  const IndexTensor words(Words(EliasFano{.n = 10, .k = 3}.words() + 1, 0));
  CHECK_THROWS_WITH(elias_fano_encode(stream, indices.view, 10, words.view),
                    Catch::Contains("elias_fano words is u32 (3), due is u32 (2)"));
  CHECK_THROWS_WITH(elias_fano_encode(stream, indices.view, 2, words.view),
                    Catch::Contains("3 indices below 2"));
}

}  // namespace slackline::testing
