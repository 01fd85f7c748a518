#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "data/numpy_shuffle.h"

namespace slackline {

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

}  // namespace slackline
