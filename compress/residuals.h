#pragma once

#include <cstddef>
#include <vector>

#include "compress/codec.h"
#include "core/tensor/buffer.h"

namespace slackline {

// What the messages of one site still owe: the residuals of error feedback, f32 and zero at first.
// Owns them, in a device's memory; codecs read and write them.
class Residuals {
 public:
  Residuals() = default;

  // `messages` a step, of these matrices each. Immediate feedback keeps a residual for each of
  // them, lazy feedback one for all.
  Residuals(ErrorFeedback feedback,
            const std::vector<CodecPart>& parts,
            int messages,
            Device device = Device::cpu);

  // What the codec gets with message `index` of a step: a tensor a matrix, nothing without error
  // feedback.
  [[nodiscard]] const Codec::Matrices& of(int index) const;

  // All of them: [message][matrix].
  [[nodiscard]] const std::vector<Codec::Matrices>& all() const { return tensors_; }

  // Takes over what `other` owes of message `index`. REQUIRES: the same matrices and feedback, and
  // no codec is at work on either.
  void take(int index, Residuals& other);

  // Sets what is owed of message `index` to zero. REQUIRES: no codec is at work on it.
  void clear(int index);

  [[nodiscard]] static std::size_t bytes(ErrorFeedback feedback,
                                         const std::vector<CodecPart>& parts,
                                         int messages);

 private:
  // Returns the place in the lists of what is owed of a message.
  [[nodiscard]] std::size_t place_of(int index) const;

  std::vector<Buffer> buffers_;           // of each message, or of all
  std::vector<Codec::Matrices> tensors_;  // likewise
};

}  // namespace slackline
