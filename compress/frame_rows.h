#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/codec.h"

namespace slackline {

// Rows [first, last) of one matrix of a message.
struct MatrixRows {
  std::size_t matrix = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;

  [[nodiscard]] std::int64_t count() const { return last - first; }

  friend bool operator==(const MatrixRows&, const MatrixRows&) = default;
};

// Those rows as a message of their own.
[[nodiscard]] std::vector<CodecPart> parts_of_rows(const std::vector<CodecPart>& parts,
                                                   const std::vector<MatrixRows>& rows);

// Makes a frame of some rows out of `frame` of whole matrices, for settings of quantize. `slice`
// begins with the frame_bytes() of parts_of_rows(), which become a frame that decodes to these
// rows, bit for bit: their codes, and the scales that they have a share in.
void cut_frame(StreamView stream,
               const CodecSetting& setting,
               const std::vector<CodecPart>& parts,
               const Tensor& frame,
               const std::vector<MatrixRows>& rows,
               const Tensor& slice);

}  // namespace slackline
