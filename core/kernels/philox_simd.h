#pragma once

#include <algorithm>
#include <array>
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

// The random words of one sample under one key, drawn in so many vectors of counters at once: a
// round waits for its products, and the rounds of others fill the time.
template <std::size_t num_vectors>
class DropoutWords {
 public:
  using Tag = hn::ScalableTag<std::uint64_t>;
  using Vector = hn::Vec<Tag>;

  static constexpr Tag kTag{};
  static constexpr std::size_t kWords = 4 * num_vectors * hn::MaxLanes(kTag);  // of one draw

  DropoutWords(const DropoutKey& key, std::uint64_t sample)
      : sample_(low_word(sample)), step_(low_word(key.step)) {
    std::uint32_t key0 = key.site[0] ^ high_word(sample);
    std::uint32_t key1 = key.site[1] ^ high_word(key.step);
    for (Keys& keys : keys_) {
      keys = {hn::Set(kTag, key0), hn::Set(kTag, key1)};
      key0 += kPhiloxWeyl[0];
      key1 += kPhiloxWeyl[1];
    }
  }

  // Writes the words of elements 4 * first_block .. 4 * first_block + kWords - 1; T is a word, or
  // half of one: low halves first.
  template <typename T>
  void draw(std::uint64_t first_block, T* words) const {
    Counters counters[num_vectors];
    for (std::size_t v = 0; v < num_vectors; ++v) {
      const Vector block =
          hn::Add(hn::LoadU(kTag, kOrder.data()), hn::Set(kTag, first_block + v * kLanes));
      counters[v] = {
          block, hn::ShiftRight<32>(block), hn::Set(kTag, sample_), hn::Set(kTag, step_)};
    }
    for (const Keys& keys : keys_) {
      for (Counters& c : counters) {
        const Vector product0 = multiply(c.word0, kPhiloxMultipliers[0]);
        const Vector product1 = multiply(c.word2, kPhiloxMultipliers[1]);
        c.word0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), c.word1), keys.key0);
        c.word2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), c.word3), keys.key1);
        c.word1 = product1;
        c.word3 = product0;
      }
    }
    for (std::size_t v = 0; v < num_vectors; ++v) {
      store(counters[v], words + v * kLanes * sizeof(PhiloxBlock) / sizeof(T));
    }
  }

 private:
  static constexpr std::size_t kLanes = hn::MaxLanes(kTag);

  // Which counter a lane holds: interleaving puts even lanes first, then odd ones.
  static constexpr std::array<std::uint64_t, kLanes> kOrder = [] {
    std::array<std::uint64_t, kLanes> order{};
    for (std::size_t i = 0; i < kLanes; ++i) {
      order[i] = i / 2 + i % 2 * (kLanes / 2);
    }
    return order;
  }();

  // The keys of a round, the same in all lanes.
  struct Keys {
    Vector key0;
    Vector key1;
  };

  // A counter in each lane.
  struct Counters {
    Vector word0;
    Vector word1;
    Vector word2;
    Vector word3;
  };

  // Word by word, counter by counter: lanes are in the order of kOrder.
  template <typename T>
  static void store(const Counters& c, T* words) {
    const auto join = [](Vector low, Vector high) {
      const hn::Repartition<std::uint32_t, Tag> halves;
      const auto upper = hn::BitCast(halves, hn::ShiftLeft<32>(high));
      return hn::BitCast(kTag, hn::OddEven(upper, hn::BitCast(halves, low)));
    };
    const hn::Repartition<T, Tag> stored;
    const Vector words01 = join(c.word0, c.word1);
    const Vector words23 = join(c.word2, c.word3);
    const Vector first = hn::InterleaveLower(words01, words23);
    const Vector second = hn::InterleaveUpper(kTag, words01, words23);
    hn::StoreU(hn::BitCast(stored, first), stored, words);
    hn::StoreU(hn::BitCast(stored, second), stored, words + hn::MaxLanes(stored));
  }

  // The 64-bit products of the lanes' lower halves.
  static Vector multiply(Vector lanes, std::uint32_t factor) {
    const hn::Repartition<std::uint32_t, Tag> halves;
    return hn::MulEven(hn::BitCast(halves, lanes), hn::Set(halves, factor));
  }

  Keys keys_[kPhiloxRounds];
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
      if (skipped == 0 && rest >= Words::kWords) {
        draw_whole(element / 4, &factors[done]);
        done += Words::kWords;
        continue;
      }
      alignas(64) float whole[Words::kWords];
      draw_whole(element / 4, whole);
      const std::size_t count = std::min(rest, Words::kWords - skipped);
      std::memcpy(&factors[done], whole + skipped, count * sizeof(float));
      done += count;
    }
  }

 private:
  using Words = DropoutWords<2>;

  void draw_whole(std::uint64_t first_block, float* factors) const {
    alignas(64) std::uint32_t words[Words::kWords];
    words_.draw(first_block, words);
    for (std::size_t i = 0; i < Words::kWords; i += kLanes) {
      const auto dropped = hn::Lt(hn::Load(kWords, words + i), hn::Set(kWords, threshold_));
      store(hn::IfThenZeroElse(hn::RebindMask(kFloats, dropped), splat(kept_)), factors + i);
    }
  }

  Words words_;
  std::uint32_t threshold_;
  float kept_;
};

}  // namespace slackline::simd
