#pragma once

#include <cstddef>
#include <vector>

#include "compress/codec.h"

namespace slackline {

// What the codecs that keep single elements share: how many of each matrix travel, and where they
// stand among those of the whole message.
class KeptParts {
 public:
  // REQUIRES: what a message keeps, and its bytes, fit 32 bits.
  KeptParts(const CodecSetting& setting, const std::vector<CodecPart>& parts);

  [[nodiscard]] std::size_t size() const { return parts_.size(); }

  [[nodiscard]] std::size_t elements(std::size_t matrix) const { return parts_[matrix].elements; }

  [[nodiscard]] std::size_t kept(std::size_t matrix) const { return parts_[matrix].kept; }

  [[nodiscard]] std::size_t total() const { return total_; }

  [[nodiscard]] std::size_t largest() const { return largest_; }  // kept of one matrix

  // The part of a matrix of (total()) elements of a whole message.
  [[nodiscard]] Tensor part(const Tensor& message, std::size_t matrix) const;

  // Throws Error unless `matrices` are f32 tensors of a message's element counts.
  void check(const char* name, const Codec::Matrices& matrices) const;

  // What `matrix` of a message stands for: its values, or with a residual the sum of both, left in
  // the residual. REQUIRES: both were checked.
  [[nodiscard]] Tensor owed(StreamView stream,
                            const Codec::Matrices& values,
                            const Codec::Matrices& residual,
                            std::size_t matrix) const;

 private:
  struct Part {
    std::size_t elements = 0;
    std::size_t kept = 0;
    std::size_t first = 0;  // kept of the matrices before
  };

  std::vector<Part> parts_;
  std::size_t total_ = 0;
  std::size_t largest_ = 0;
};

[[nodiscard]] Tensor flat(const Tensor& tensor);

}  // namespace slackline
