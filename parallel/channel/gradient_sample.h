#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compress/codec.h"
#include "compress/frame_rows.h"
#include "compress/message_sums.h"
#include "core/comm/communicator.h"
#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"

namespace slackline {

// What is measured of one compressed sum in a step, on fixed elements of its matrices, at most
// kElements of them, the same on all ranks of the group: what each rank brings, what all decode,
// and what each keeps as residual. The true sum, and what is still owed of it, which is the sum of
// all residuals, ranks tell each other after the step. Stays where it is between add_up() and
// sums(). One thread at a time: take_raw() and take_sent() are the codecs', the rest the rank's.
class GradientSample {
 public:
  static constexpr std::size_t kElements = 4096;

  explicit GradientSample(const Codec::Matrices& gradients);

  // This rank gets the sums of these rows alone: what all decode is put together after the step.
  // REQUIRES: each row is of one rank of the group, and all ranks call it.
  void take_sent_of(std::vector<MatrixRows> rows);

  // Called before the codec begins, and after the decoded sum is in place; `residual` may be empty.
  // Both block.
  void take_raw(StreamView stream, const Codec::Matrices& gradients);
  void take_sent(StreamView stream,
                 const Codec::Matrices& gradients,
                 const Codec::Matrices& residual);

  // Begins to add up what ranks brought and what they keep, and where each has rows of its own what
  // they decoded. All ranks of the group call it.
  void add_up(Communicator& group);

  // Waits for that. Returns the group's sums of one matrix, which one rank of it counts.
  [[nodiscard]] MessageSums sums(std::size_t matrix);

 private:
  [[nodiscard]] std::vector<float> values_of(StreamView stream,
                                             const Codec::Matrices& matrices) const;
  void keep_own_rows(const Codec::Matrices& gradients);

  // Each matrix's elements begin here among those of the sample; the last border is their end.
  std::vector<std::int64_t> borders_{0};
  Buffer indices_;  // in their matrices, u32
  Buffer taken_;    // scratch: a value for each, f32
  // What is brought, and behind it the residuals: of this rank, then of all.
  std::vector<double> added_;
  std::vector<float> sent_;
  std::optional<std::vector<MatrixRows>> rows_{};  // of which sent_ is known; nothing: of all
  Transfer transfer_{};
  Transfer sent_transfer_{};
};

}  // namespace slackline
