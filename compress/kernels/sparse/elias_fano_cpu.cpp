#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "compress/kernels/sparse/elias_fano.h"
#include "core/kernels/parallel_ranges.h"
#include "core/rng.h"
#include "core/tensor/arena.h"

// A task owns whole words of a code, so that tasks share none. Place j of a code is the bit of
// index j among the upper parts; places ascend strictly, even where indices have equal upper parts,
// so the first index of a range of words is found by halving.
namespace slackline::cpu {

namespace {

constexpr unsigned kWordBits = EliasFano::kWordBits;
constexpr std::size_t kIndicesPerTask = 8192;  // whole words, whatever the number of low bits
static_assert(kIndicesPerTask % kWordBits == 0);

// Writes the upper parts of the words from `begin` to `end`.
void write_upper(const std::uint32_t* indices,
                 const EliasFano& code,
                 std::uint32_t* upper,
                 std::size_t begin,
                 std::size_t end) {
  const unsigned low_bits = code.low_bits();
  const auto place = [&](std::size_t j) { return (std::size_t{indices[j]} >> low_bits) + j; };
  std::size_t first = 0;
  for (std::size_t count = code.k; count > 0;) {
    const std::size_t half = count / 2;
    const bool is_before = place(first + half) < begin * kWordBits;
    first = is_before ? first + half + 1 : first;
    count = is_before ? count - half - 1 : half;
  }
  std::size_t at = begin;
  std::uint32_t word = 0;
  for (std::size_t j = first; j < code.k; ++j) {
    const std::size_t p = place(j);
    if (p >= end * kWordBits) {
      break;
    }
    for (; at < p / kWordBits; ++at) {
      upper[at] = word;
      word = 0;
    }
    word |= 1U << p % kWordBits;
  }
  for (; at < end; ++at) {
    upper[at] = word;
    word = 0;
  }
}

// Writes the lower parts of the indices from `begin`, which stands at a whole word, to `end`.
void write_lower(const std::uint32_t* indices,
                 unsigned low_bits,
                 std::uint32_t* lower,
                 std::size_t begin,
                 std::size_t end) {
  const std::uint32_t mask = (1U << low_bits) - 1U;
  std::uint32_t* to = lower + begin * low_bits / kWordBits;
  std::uint64_t bits = 0;
  unsigned count = 0;
  for (std::size_t j = begin; j < end; ++j) {
    bits |= std::uint64_t{indices[j] & mask} << count;
    count += low_bits;
    if (count >= kWordBits) {
      *to++ = low_word(bits);
      bits >>= kWordBits;
      count -= kWordBits;
    }
  }
  if (count > 0) {
    *to = low_word(bits);
  }
}

// Reads the lower part of an index after the other: two words at once but for the last.
class LowerParts {
 public:
  LowerParts(const EliasFano& code, const std::uint32_t* lower)
      : lower_(lower),
        num_words_(code.lower_words()),
        low_bits_(code.low_bits()),
        mask_((1U << low_bits_) - 1U) {}

  [[nodiscard]] std::uint32_t of(std::size_t j) const {
    const std::size_t bit = j * low_bits_;
    const std::size_t word = bit / kWordBits;
    std::uint64_t two = 0;
    if (word + 1 < num_words_) {
      std::memcpy(&two, lower_ + word, sizeof(two));
    } else if (word < num_words_) {
      two = lower_[word];
    }
    return low_word(two >> bit % kWordBits) & mask_;
  }

 private:
  const std::uint32_t* lower_;
  std::size_t num_words_;
  unsigned low_bits_;
  std::uint32_t mask_;
};

// Two words of the upper parts, or the last one.
std::uint64_t two_words(const std::uint32_t* upper, std::size_t at, std::size_t end) {
  std::uint64_t two = upper[at];
  if (at + 1 < end) {
    std::memcpy(&two, upper + at, sizeof(two));
  }
  return two;
}

// The ones of each range of words become those of the ranges before; returns those of all.
std::size_t count_ones(StreamView stream,
                       const EliasFano& code,
                       const std::uint32_t* upper,
                       std::uint32_t* ones) {
  const auto body = [=](std::size_t begin, std::size_t end) {
    std::uint32_t count = 0;
    for (std::size_t at = begin; at < end; at += 2) {
      count += static_cast<std::uint32_t>(std::popcount(two_words(upper, at, end)));
    }
    ones[begin / kUpperWordsPerRange] = count;
  };
  parallel_ranges(stream, code.upper_words(), kUpperWordsPerRange, body);
  std::size_t total = 0;
  for (std::size_t range = 0; range < num_upper_ranges(code); ++range) {
    const std::uint32_t count = ones[range];
    ones[range] = low_word(total);
    total += count;
  }
  return total;
}

}  // namespace

void elias_fano_encode(StreamView stream,
                       const Tensor& indices,
                       const EliasFano& code,
                       const Tensor& words) {
  const auto* from = indices.data<std::uint32_t>();
  auto* const upper = words.data<std::uint32_t>();
  parallel_ranges(
      stream, code.upper_words(), kUpperWordsPerRange, [&](std::size_t begin, std::size_t end) {
        write_upper(from, code, upper, begin, end);
      });
  std::uint32_t* const lower = upper + code.upper_words();
  parallel_ranges(stream, code.k, kIndicesPerTask, [&](std::size_t begin, std::size_t end) {
    write_lower(from, code.low_bits(), lower, begin, end);
  });
}

void elias_fano_decode(StreamView stream,
                       const Tensor& words,
                       const EliasFano& code,
                       const FaultNote& note,
                       const Tensor& indices) {
  ArenaScope scope(stream.workspace());
  auto* const ones = scope.allocate(DType::u32, {static_cast<std::int64_t>(num_upper_ranges(code))})
                         .data<std::uint32_t>();
  const auto* upper = words.data<std::uint32_t>();
  const std::size_t total = count_ones(stream, code, upper, ones);
  if (total != code.k) {
    note.raise({.raise = note.raise, .words = {low_word(total), low_word(code.k), note.tag}});
  }
  const LowerParts lower(code, upper + code.upper_words());
  const unsigned low_bits = code.low_bits();
  auto* const to = indices.data<std::uint32_t>();
  const auto body = [=](std::size_t begin, std::size_t end) {
    std::size_t j = ones[begin / kUpperWordsPerRange];
    for (std::size_t at = begin; at < end; at += 2) {
      for (std::uint64_t two = two_words(upper, at, end); two != 0; two &= two - 1, ++j) {
        const std::size_t place = at * kWordBits + static_cast<std::size_t>(std::countr_zero(two));
        const std::size_t index = ((place - j) << low_bits) + lower.of(j);
        // A damaged code may go beyond what an index can be.
        to[j] = low_word(std::min<std::size_t>(index, std::numeric_limits<std::uint32_t>::max()));
      }
    }
  };
  parallel_ranges(stream, code.upper_words(), kUpperWordsPerRange, body);
}

}  // namespace slackline::cpu
