#include <span>

#include "core/kernels/parallel_ranges.h"
#include "core/kernels/random_sample.h"
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

class VectorPermutation {
 public:
  explicit VectorPermutation(const RandomPermutation& permutation)
      : permutation_(permutation), side_(hn::Set(kWords, permutation.side())) {}

  // The images of x, x + 1, ... REQUIRES: all are below n; side() >= kLanes.
  [[nodiscard]] Words images(std::uint32_t x) const {
    Words left = hn::Set(kWords, x / permutation_.side());
    Words right = hn::Iota(kWords, x % permutation_.side());
    const auto is_next = hn::Not(hn::Lt(right, side_));  // at most one multiple of side lies among them
    left = hn::Sub(left, hn::VecFromMask(kWords, is_next));
    right = hn::Sub(right, hn::IfThenElseZero(is_next, side_));
    run_rounds(left, right);
    const Words last = hn::Set(kWords, permutation_.last());
    while (true) {
      const Words image = hn::Add(hn::Mul(left, side_), right);
      const auto is_outside = hn::Gt(image, last);
      if (hn::AllFalse(kWords, is_outside)) {
        return image;
      }
      Words next_left = left;
      Words next_right = right;
      run_rounds(next_left, next_right);
      left = hn::IfThenElse(is_outside, next_left, left);
      right = hn::IfThenElse(is_outside, next_right, right);
    }
  }

 private:
  void run_rounds(Words& left, Words& right) const {
    for (int round = 0; round < RandomPermutation::kRounds; ++round) {
      const Words sum = hn::Add(left, round_function(right, permutation_.round_key(round)));
      left = right;
      right = hn::Min(sum, hn::Sub(sum, side_));  // below side the difference wraps to above it
    }
  }

  [[nodiscard]] Words round_function(Words right, std::uint32_t round_key) const {
    constexpr int kShift0 = RandomPermutation::kShift0;
    constexpr int kShift1 = RandomPermutation::kShift1;
    const Words multiplier0 = hn::Set(kWords, RandomPermutation::kMultiplier0);
    const Words multiplier1 = hn::Set(kWords, RandomPermutation::kMultiplier1);
    Words word = hn::Mul(hn::Add(right, hn::Set(kWords, round_key)), multiplier0);
    word = hn::Mul(hn::Xor(word, hn::ShiftRight<kShift0>(word)), multiplier1);
    word = hn::Mul(hn::Xor(word, hn::ShiftRight<kShift1>(word)), multiplier0);
    const Words upper = hn::Mul(hn::ShiftRight<16>(word), side_);
    const Words lower = hn::Mul(hn::And(word, hn::Set(kWords, kLowerHalf)), side_);
    return hn::ShiftRight<16>(hn::Add(upper, hn::ShiftRight<16>(lower)));
  }

  const RandomPermutation& permutation_;
  Words side_;
};

}  // namespace

void random_sample(StreamView stream,
                   const RandomPermutation& permutation,
                   std::span<std::uint32_t> indices) {
  const VectorPermutation vectors(permutation);
  const auto body = [&](std::size_t begin, std::size_t end) {
    std::size_t i = begin;
    if (permutation.side() >= simd::kLanes) {
      for (; i + simd::kLanes <= end; i += simd::kLanes) {
        hn::StoreU(vectors.images(static_cast<std::uint32_t>(i)), kWords, &indices[i]);
      }
    }
    for (; i < end; ++i) {
      indices[i] = permutation(static_cast<std::uint32_t>(i));
    }
  };
  parallel_ranges(stream, indices.size(), kElementsPerTask, body);
}

}  // namespace slackline::cpu
