#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/codec.h"
#include "core/comm/communicator.h"
#include "parallel/message_sums.h"

namespace slackline {

// What is measured of one compressed sum in a step, on fixed elements of its matrices, at most
// kElements of them, the same on all ranks of the group: what each rank brings, what all decode,
// and what each keeps as residual. What the true sum is, ranks tell each other after the step.
// Stays where it is between add_up() and sums(). One thread at a time: take_sent() is the codecs',
// the rest the rank's.
class GradientSample {
 public:
  static constexpr std::size_t kElements = 4096;

  explicit GradientSample(const Codec::Matrices& gradients);

  // Before the codec begins, and after the decoded sum is in place; `residual` may be empty.
  void take_raw(const Codec::Matrices& gradients);
  void take_sent(const Codec::Matrices& gradients, const Codec::Matrices& residual);

  // Begins to add up what ranks brought. All ranks of the group call it.
  void add_up(Communicator& group);

  // Waits for that. Of one matrix: the residual of this rank; everything else is the group's, so
  // that one rank of it may count it.
  [[nodiscard]] MessageSums sums(std::size_t matrix);

 private:
  struct Element {
    std::size_t matrix = 0;
    std::size_t index = 0;
  };

  std::vector<Element> elements_;
  std::vector<double> raw_;  // of this rank, then of all
  std::vector<float> sent_;
  std::vector<float> residual_;
  Transfer transfer_{};
};

}  // namespace slackline
