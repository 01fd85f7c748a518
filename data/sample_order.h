#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "data/numpy_shuffle.h"

namespace slackline {

// The order in which a run sees one data set: Megatron's, token for token.
//
// The sequences of the split, in file order, are repeated for as many epochs as the samples need,
// shuffled, and walked as one long stream. Sample j is the tokens j * T .. (j + 1) * T of it, so
// neighbours share a token. The samples are then shuffled in their turn. Where the last epoch would
// give less than 80 % of its samples, its sequences and its samples are shuffled apart and come
// last, so that the run ends in a part of an epoch that is not mixed into the whole ones.
struct SampleOrderOptions {
  std::uint64_t seed = 0;
  std::uint64_t sequence = 0;  // T
  std::uint64_t samples = 0;   // that the run asked for
  // 0 for Megatron's order. Block n > 0 continues a run that was made longer, with a generator of
  // its own, seeded from (seed, n).
  std::uint64_t block = 0;
};

// Numbers up to `largest`, in four bytes each where they fit, else in eight: sample orders hold as
// many of them as a run has samples.
class IndexArray {
 public:
  IndexArray() = default;

  IndexArray(std::size_t capacity, std::uint64_t largest)
      : wide_(largest > std::numeric_limits<std::uint32_t>::max()) {
    wide_ ? long_.reserve(capacity) : short_.reserve(capacity);
  }

  void push_back(std::uint64_t value) {
    if (wide_) {
      long_.push_back(value);
    } else {
      short_.push_back(static_cast<std::uint32_t>(value));
    }
  }

  [[nodiscard]] std::size_t size() const { return wide_ ? long_.size() : short_.size(); }

  [[nodiscard]] std::uint64_t operator[](std::size_t i) const {
    return wide_ ? long_[i] : short_[i];
  }

  // Shuffles the elements first .. first + count - 1.
  void shuffle(NumpyShuffler& shuffler, std::size_t first, std::size_t count) {
    if (wide_) {
      shuffler.shuffle(std::span(long_).subspan(first, count));
    } else {
      shuffler.shuffle(std::span(short_).subspan(first, count));
    }
  }

 private:
  bool wide_ = false;
  std::vector<std::uint32_t> short_;
  std::vector<std::uint64_t> long_;
};

// A pure function of its arguments; not to be changed.
struct SampleOrder {
  // Where a token stands: a place in the shuffled order of sequences, and an offset there.
  struct Place {
    std::size_t position = 0;
    std::uint64_t offset = 0;
  };

  // Part of a sample: `count` tokens of a sequence of the split, from `offset` on.
  struct Part {
    std::uint64_t sequence = 0;
    std::uint64_t offset = 0;
    std::uint64_t count = 0;
  };

  // Counts the epochs, of so many tokens each, that samples of T + 1 tokens need.
  [[nodiscard]] static std::uint64_t epochs_of(std::uint64_t samples,
                                               std::uint64_t sequence,
                                               std::uint64_t epoch_tokens) {
    return (samples * sequence + 1 + epoch_tokens - 1) / epoch_tokens;
  }

  // `lengths` are the tokens of each sequence of the split.
  // REQUIRES: they add up to T + 1 at least; T, samples > 0.
  SampleOrder(std::span<const std::uint32_t> lengths, const SampleOrderOptions& options);

  // All samples of the epochs: at least as many as were asked for.
  [[nodiscard]] std::uint64_t num_samples() const { return samples.size(); }

  // The first token of sample j, not shuffled; num_samples() gives the last token of all.
  [[nodiscard]] Place start_of(std::uint64_t j) const;

  // Appends the T + 1 tokens of the `index`-th sample in training order, as parts of sequences.
  void append_parts(std::uint64_t index, std::vector<Part>& parts) const;

  std::uint64_t sequence;  // T
  std::uint64_t epochs = 1;
  bool last_epoch_is_separate = false;
  IndexArray sequences;               // by position; Megatron's document index
  std::vector<std::uint64_t> starts;  // tokens before each of them, then all tokens
  IndexArray samples;                 // in training order; Megatron's shuffle index
};

}  // namespace slackline
