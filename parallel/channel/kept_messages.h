#pragma once

#include <cstddef>
#include <vector>

#include "compress/codec.h"
#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"
#include "parallel/schedule/transfer_class.h"

namespace slackline {

// Messages of one step of one rank as they were before any codec, to try codecs on: for each site
// and virtual stage some matrices, copies in f32 on the device of what was copied. Used by the
// rank's thread.
class KeptMessages {
 public:
  static constexpr std::size_t kMostElements = std::size_t{1} << 20U;  // of a site and stage

  struct Message {
    schedule::Site site{};
    int stage = 0;
    MatrixShape whole{};  // of which the first `shape.rows` rows are kept
    MatrixShape shape{};
    Buffer memory{};

    [[nodiscard]] Tensor values() const {
      return memory.view(DType::f32, {shape.rows, shape.columns});
    }
  };

  // Forgets the step before.
  void begin_step() { messages_.clear(); }

  // Keeps `matrix` (rows x columns, f32 or bf16, in the order of `stream`) if there is room: of the
  // first matrix of a site and stage as many rows as fit, others whole or not at all.
  void keep(StreamView stream, schedule::Site site, int stage, const Tensor& matrix);

  // Elements of a site and stage.
  [[nodiscard]] std::size_t num_elements(schedule::Site site, int stage) const;

  [[nodiscard]] const std::vector<Message>& all() const { return messages_; }

 private:
  std::vector<Message> messages_{};
};

}  // namespace slackline
