#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
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

// Whether messages of this kind can be cut by rows, so that whoever needs the sum of some rows
// alone gets no more: a row's share of a message depends on the setting and the shapes alone.
[[nodiscard]] bool cuts_by_rows(CodecKind kind);

// Those rows as a message of their own.
[[nodiscard]] std::vector<CodecPart> parts_of_rows(const std::vector<CodecPart>& parts,
                                                   const std::vector<MatrixRows>& rows);

// Makes frames of some rows out of frames of whole matrices, for settings of quantize.
class FrameCutter {
 public:
  FrameCutter(const CodecSetting& setting, std::vector<CodecPart> parts)
      : setting_(setting), parts_(std::move(parts)) {}

  // `slice` begins with the frame_bytes() of parts_of_rows(), which become a frame that decodes to
  // these rows, bit for bit: their codes, and the scales that they have a share in.
  void cut(StreamView stream,
           const Tensor& frame,
           const std::vector<MatrixRows>& rows,
           const Tensor& slice) const;

 private:
  CodecSetting setting_;
  std::vector<CodecPart> parts_;
};

}  // namespace slackline
