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
    Buffer moments_memory{};  // without elements where none are kept

    [[nodiscard]] Tensor values() const {
      return memory.view(DType::f32, {shape.rows, shape.columns});
    }

    [[nodiscard]] Tensor moments() const {
      return moments_memory.bytes() == 0
                 ? Tensor()
                 : moments_memory.view(DType::f32, {shape.rows, shape.columns});
    }
  };

  // Forgets the step before.
  void begin_step() { messages_.clear(); }

  // Keeps `matrix` (rows x columns, f32 or bf16, in the order of `stream`) if there is room: of the
  // first matrix of a site and stage as many rows as fit, others whole or not at all. With them
  // the second moments of its elements, if there are any.
  void keep(StreamView stream,
            schedule::Site site,
            int stage,
            const Tensor& matrix,
            const Tensor& moments = {});

  // Elements of a site and stage.
  [[nodiscard]] std::size_t num_elements(schedule::Site site, int stage) const;

  [[nodiscard]] const std::vector<Message>& all() const { return messages_; }

 private:
  std::vector<Message> messages_{};
};

}  // namespace slackline
