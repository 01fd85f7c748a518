#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "compress/codec.h"
#include "compress/message_sums.h"
#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"
#include "parallel/schedule/transfer_class.h"

namespace slackline {

// What is measured of the messages that one boundary codec sends in a step: of the first message
// of each class what it loses, and with lazy feedback, where inputs are given, of each pair of
// consecutive messages what Optimus-CC's Fig. 11 shows. Changes nothing that is sent or kept. Its
// memory lives for the step alone. Used by the thread that encodes.
class BoundarySample {
 public:
  using Classes = std::map<std::uint64_t, schedule::TransferClass>;  // by micro-batch

  BoundarySample(Classes classes, ErrorFeedback feedback);

  // Called before the codec encodes: `residual` is what the message before left, `input` the input
  // of the stage that sends, or empty.
  void add_input(StreamView stream,
                 std::uint64_t micro_batch,
                 const Tensor& input,
                 const Codec::Matrices& residual);

  // Called after it has encoded `values` and before it settles.
  void add_message(StreamView stream,
                   std::uint64_t micro_batch,
                   const Codec& codec,
                   const Tensor& values,
                   const Codec::Matrices& residual,
                   const Tensor& frame);

  [[nodiscard]] const std::map<schedule::TransferClass, MessageSums>& sums() const { return sums_; }

 private:
  Classes classes_;
  ErrorFeedback feedback_;
  std::map<schedule::TransferClass, MessageSums> sums_{};
  std::optional<std::uint64_t> before_{};  // the message before
  Buffer input_{};                         // of that message, f32
};

}  // namespace slackline
