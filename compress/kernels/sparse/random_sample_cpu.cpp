#include <cstring>
#include <span>

#include "compress/kernels/sparse/random_sample.h"
#include "core/kernels/parallel_ranges.h"
#include "core/kernels/simd.h"
#include "core/random_permutation.h"

// RandomPermutation in vectors, bit for bit. Words are 32 bits wide and sides at most 2^16, so the
// upper half of word * side comes from two products of 16 by 17 bits.
namespace slackline::cpu {

namespace {

namespace hn = simd::hn;
using simd::kWords;
using simd::Words;

constexpr std::uint32_t kLowerHalf = 0xffff;

// Several vectors go through the rounds together: each waits for its own products.
class VectorPermutation {
 public:
  static constexpr std::size_t kVectors = 4;
  static constexpr std::size_t kSize = kVectors * simd::kLanes;

  explicit VectorPermutation(const RandomPermutation& permutation)
      : permutation_(permutation), side_(hn::Set(kWords, permutation.side())) {}

  // Writes the images of x .. x + kSize - 1. REQUIRES: these are below n; side() >= kLanes.
  void images(std::uint32_t x, std::uint32_t* to) const {
    Halves halves{};
    for (std::size_t v = 0; v < kVectors; ++v) {
      split(x + static_cast<std::uint32_t>(v * simd::kLanes), halves.left[v], halves.right[v]);
    }
    run_rounds(halves);
    while (true) {
      Words largest = hn::Zero(kWords);
      for (std::size_t v = 0; v < kVectors; ++v) {
        const Words image = joined(halves, v);
        hn::StoreU(image, kWords, to + v * simd::kLanes);
        largest = hn::Max(largest, image);
      }
      if (hn::AllFalse(kWords, hn::Gt(largest, hn::Set(kWords, permutation_.last())))) {
        return;
      }
      walk_on(halves);
    }
  }

 private:
  struct Halves {
    Words left[kVectors];
    Words right[kVectors];
  };

  // Splits x, x + 1, ...
  void split(std::uint32_t x, Words& left, Words& right) const {
    left = hn::Set(kWords, x / permutation_.side());
    right = hn::Iota(kWords, x % permutation_.side());
    const auto is_below = hn::Lt(right, side_);  // at most one multiple of side lies among them
    left = hn::Add(left, hn::IfThenZeroElse(is_below, hn::Set(kWords, 1)));
    right = hn::Sub(right, hn::IfThenZeroElse(is_below, side_));
  }

  [[nodiscard]] Words joined(const Halves& halves, std::size_t v) const {
    return hn::Add(hn::Mul(halves.left[v], side_), halves.right[v]);
  }

  // Sends images of n and above through the rounds again.
  void walk_on(Halves& halves) const {
    Halves next = halves;
    run_rounds(next);
    for (std::size_t v = 0; v < kVectors; ++v) {
      const auto is_outside = hn::Gt(joined(halves, v), hn::Set(kWords, permutation_.last()));
      halves.left[v] = hn::IfThenElse(is_outside, next.left[v], halves.left[v]);
      halves.right[v] = hn::IfThenElse(is_outside, next.right[v], halves.right[v]);
    }
  }

  void run_rounds(Halves& halves) const {
    for (int round = 0; round < RandomPermutation::kRounds; ++round) {
      const Words round_key = hn::Set(kWords, permutation_.round_key(round));
      for (std::size_t v = 0; v < kVectors; ++v) {
        const Words sum =
            hn::Add(halves.left[v], round_function(hn::Add(halves.right[v], round_key)));
        halves.left[v] = halves.right[v];
        halves.right[v] = hn::Min(sum, hn::Sub(sum, side_));  // below side the difference wraps
      }
    }
  }

  [[nodiscard]] Words round_function(Words keyed) const {
    Words word = hn::Mul(keyed, hn::Set(kWords, RandomPermutation::kMultiplier0));
    word = hn::Xor(word, hn::ShiftRight<RandomPermutation::kShift>(word));
    word = hn::Mul(word, hn::Set(kWords, RandomPermutation::kMultiplier1));
    const Words upper = hn::Mul(hn::ShiftRight<16>(word), side_);
    const Words lower = hn::Mul(hn::And(word, hn::Set(kWords, kLowerHalf)), side_);
    return hn::ShiftRight<16>(hn::Add(upper, hn::ShiftRight<16>(lower)));
  }

  const RandomPermutation& permutation_;
  Words side_;
};

PhiloxKey key_of(const SampleKey& key) {
  if (key.words.empty()) {
    return key.key;
  }
  PhiloxBlock words;
  std::memcpy(words.data(), key.words.raw(), sizeof(words));
  const PhiloxBlock mixed = philox(key.key, words);
  return {mixed[0], mixed[1]};
}

}  // namespace

void random_sample(StreamView stream, const SampleKey& key, std::size_t n, const Tensor& sampled) {
  const RandomPermutation permutation(key_of(key), n);
  const std::span<std::uint32_t> indices = sampled.span<std::uint32_t>();
  const VectorPermutation vectors(permutation);
  const auto body = [&](std::size_t begin, std::size_t end) {
    std::size_t i = begin;
    if (permutation.side() >= simd::kLanes) {
      for (; i + VectorPermutation::kSize <= end; i += VectorPermutation::kSize) {
        vectors.images(static_cast<std::uint32_t>(i), &indices[i]);
      }
    }
    for (; i < end; ++i) {
      indices[i] = permutation(static_cast<std::uint32_t>(i));
    }
  };
  parallel_ranges(stream, indices.size(), kElementsPerTask, body);
}

}  // namespace slackline::cpu
