#pragma once

#include <array>
#include <cstddef>

#include "compress/codec.h"
#include "core/tensor/tensor.h"

namespace slackline {

// What compression did to sampled messages of a class, as sums over their elements in double. They
// add over messages, matrices and ranks. x: a message as it was to be sent, before error feedback;
// y: what receivers decode; e: the residual that it left.
struct MessageSums {
  double elements = 0.0;
  double raw = 0.0;       // |x|^2
  double sent = 0.0;      // |y|^2
  double product = 0.0;   // <x, y>
  double error = 0.0;     // |x - y|^2
  double residual = 0.0;  // |e|^2

  // Sums for lazy feedback at a boundary, over consecutive messages i, i + 1 of a step: E is what
  // message i left, D = X_i - X_(i+1) with X the input activation of the stage that sends
  // (docs/compression.md: what remains of lazy feedback is the sum of D^T E).
  double pair_elements = 0.0;
  double left = 0.0;                // |E|^2
  double left_sum = 0.0;            // sum of E
  double difference = 0.0;          // |D|^2
  double difference_sum = 0.0;      // sum of D
  double left_by_difference = 0.0;  // <E, D>

  MessageSums& operator+=(const MessageSums& other);
};

// All fields, to be added up over ranks, and back.
inline constexpr std::size_t kNumMessageSums = 12;
[[nodiscard]] std::array<double, kNumMessageSums> numbers_of(const MessageSums& sums);
[[nodiscard]] MessageSums sums_of(const std::array<double, kNumMessageSums>& numbers);

// One message at a boundary, all f32 of one shape. `residual` is empty, or has the message and what
// it was given on its way: the codec has encoded and is not settled.
[[nodiscard]] MessageSums sums_of_message(const Tensor& raw,
                                          const Tensor& sent,
                                          const Codec::Matrices& residual);

// One pair of messages: what the first left, and both inputs; all f32 of one shape.
[[nodiscard]] MessageSums sums_of_pair(const Tensor& left,
                                       const Tensor& first_input,
                                       const Tensor& second_input);

}  // namespace slackline
