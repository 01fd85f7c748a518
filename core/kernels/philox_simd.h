#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/kernels/simd.h"
#include "core/rng.h"

// Philox4x32-10 in vectors, for dropout: the words of core/rng.h's dropout_words, bit for bit.
//
// A 64-bit lane holds one 32-bit word of one counter. The multiplication reads the lower half
// only, so the upper half may hold the rest of an earlier product: a round is two products, two
// shifts and four exclusive ors, without any masking.
namespace slackline::simd {

// The random words of one sample under one key.
class DropoutWords {
 public:
  using Tag = hn::ScalableTag<std::uint64_t>;
  using Vector = hn::Vec<Tag>;

  static constexpr Tag kTag{};
  static constexpr std::size_t kBlocks = hn::MaxLanes(kTag);  // counters in one vector
  static constexpr std::size_t kWords = 4 * kBlocks;          // what one draw writes

  DropoutWords(const DropoutKey& key, std::uint64_t sample)
      : key0_(low(key.site[0] ^ (sample >> 32U))),
        key1_(low(key.site[1] ^ (key.step >> 32U))),
        sample_(low(sample)),
        step_(low(key.step)) {}

  // Writes the words of elements 4 * first_block .. 4 * first_block + kWords - 1.
  void draw(std::uint64_t first_block, std::uint32_t* words) const {
    Vector c0 = hn::Iota(kTag, first_block);
    Vector c1 = hn::ShiftRight<32>(c0);
    Vector c2 = hn::Set(kTag, sample_);
    Vector c3 = hn::Set(kTag, step_);
    std::uint32_t key0 = key0_;
    std::uint32_t key1 = key1_;
    for (int round = 0; round < kRounds; ++round) {
      const Vector product0 = multiply(c0, kMultiplier0);
      const Vector product1 = multiply(c2, kMultiplier1);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), c1), hn::Set(kTag, key0));
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), c3), hn::Set(kTag, key1));
      c1 = product1;
      c3 = product0;
      key0 += kWeyl0;
      key1 += kWeyl1;
    }
    const Vector mask = hn::Set(kTag, 0xffffffffU);
    const Vector words01 = hn::Or(hn::And(c0, mask), hn::ShiftLeft<32>(c1));
    const Vector words23 = hn::Or(hn::And(c2, mask), hn::ShiftLeft<32>(c3));
    alignas(64) std::uint64_t pairs[2 * kBlocks];
    hn::StoreInterleaved2(words01, words23, kTag, pairs);
    std::memcpy(words, pairs, sizeof(pairs));
  }

 private:
  static constexpr std::uint32_t kMultiplier0 = 0xD2511F53;
  static constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57;
  static constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
  static constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
  static constexpr int kRounds = 10;

  static std::uint32_t low(std::uint64_t word) { return static_cast<std::uint32_t>(word); }

  // The 64-bit products of the lanes' lower halves.
  static Vector multiply(Vector lanes, std::uint32_t factor) {
    const hn::Repartition<std::uint32_t, Tag> halves;
    return hn::MulEven(hn::BitCast(halves, lanes), hn::Set(halves, factor));
  }

  std::uint32_t key0_;
  std::uint32_t key1_;
  std::uint32_t sample_;
  std::uint32_t step_;
};

// What dropout multiplies the elements of one sample by: 0, or 1 / (1 - probability).
class DropoutFactors {
 public:
  DropoutFactors(const DropoutKey& key, std::uint64_t sample)
      : words_(key, sample),
        threshold_(dropout_threshold(key.probability)),
        kept_(1.0F / (1.0F - key.probability)) {}

  // Writes the factors of elements first_element, first_element + 1, ... of the sample.
  void draw(std::uint64_t first_element, std::span<float> factors) const {
    for (std::size_t done = 0; done < factors.size();) {
      const std::uint64_t element = first_element + done;
      const std::size_t skipped = element % 4;  // a draw starts at a multiple of four
      const std::size_t rest = factors.size() - done;
      if (skipped == 0 && rest >= DropoutWords::kWords) {
        draw_whole(element / 4, &factors[done]);
        done += DropoutWords::kWords;
        continue;
      }
      alignas(64) float whole[DropoutWords::kWords];
      draw_whole(element / 4, whole);
      const std::size_t count = std::min(rest, DropoutWords::kWords - skipped);
      std::memcpy(&factors[done], whole + skipped, count * sizeof(float));
      done += count;
    }
  }

 private:
  void draw_whole(std::uint64_t first_block, float* factors) const {
    alignas(64) std::uint32_t words[DropoutWords::kWords];
    words_.draw(first_block, words);
    for (std::size_t i = 0; i < DropoutWords::kWords; i += kLanes) {
      const auto dropped = hn::Lt(hn::Load(kWords, words + i), hn::Set(kWords, threshold_));
      store(hn::IfThenZeroElse(hn::RebindMask(kFloats, dropped), splat(kept_)), factors + i);
    }
  }

  DropoutWords words_;
  std::uint32_t threshold_;
  float kept_;
};

}  // namespace slackline::simd
