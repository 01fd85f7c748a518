#pragma once

#include <cstdint>
#include <optional>

#include "compress/codec_setting.h"
#include "compress/message_sums.h"
#include "parallel/schedule/transfer_class.h"

namespace slackline {

// What compression does to the messages of a class, from the sampled ones of a step. Numbers that
// nothing defines, such as the cosine with a message of zeros, are not a number.
struct ClassQuality {
  schedule::TransferClass members{};
  std::int64_t elements = 0;    // sampled
  double relative_error = 0.0;  // |x - y| / |x|: x as it was to be sent, y as it is decoded
  double cosine = 0.0;          // of x and y
  double raw_norm = 0.0;        // |x|
  double residual_norm = 0.0;  // of what error feedback keeps; of a sum, that of all ranks added up

  // Lazy feedback at a boundary: E what a message left, D the difference of the inputs of its
  // micro-batch and the next (MessageSums).
  struct Lazy {
    double activation_cosine = 0.0;  // of E and D
    double residual_mean = 0.0;      // of the elements of E
    double residual_rms = 0.0;
    double activation_difference_mean = 0.0;
    double activation_difference_rms = 0.0;
  };

  std::optional<Lazy> lazy{};
};

// Computes it from the sums of all ranks.
[[nodiscard]] ClassQuality quality_of(const schedule::TransferClass& members,
                                      const MessageSums& sums);

// What is held against a bound: without error feedback what messages lose, the relative error; with
// it what is still owed, as a share of the message, for of the rest a message that is off is put
// right by the next ones.
[[nodiscard]] double lost_share(const ClassQuality& quality, ErrorFeedback error_feedback);

}  // namespace slackline
