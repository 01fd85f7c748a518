#include "compress/frame_rows.h"

#include "compress/codec_bytes.h"
#include "compress/codec_traits.h"
#include "compress/frame.h"
#include "core/check.h"
#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

namespace {

// Bytes of a matrix's scales and codes; the scales come first.
struct Payload {
  std::size_t scales = 0;
  std::size_t codes = 0;
};

Payload payload_of(const CodecSetting& setting, const MatrixShape& shape) {
  const std::size_t codes = packed_bytes(setting, shape);
  return {.scales = payload_bytes(setting, shape) - codes, .codes = codes};
}

// Bytes of the scales that are a row's own, which come first; rows share the others.
std::size_t scales_of_rows(const CodecSetting& setting,
                           const MatrixShape& shape,
                           const Payload& payload) {
  switch (setting.scale) {
    case ScaleOf::token:
    case ScaleOf::group:
      return payload.scales;
    case ScaleOf::both:
      return static_cast<std::size_t>(shape.rows) * size_of(DType::bf16);
    case ScaleOf::channel:
    case ScaleOf::tensor:
      break;
  }
  return 0;
}

}  // namespace

std::vector<CodecPart> parts_of_rows(const std::vector<CodecPart>& parts,
                                     const std::vector<MatrixRows>& rows) {
  std::vector<CodecPart> cut;
  cut.reserve(rows.size());
  for (const MatrixRows& own : rows) {
    const CodecPart& part = parts.at(own.matrix);
    cut.push_back(
        {.name = part.name, .shape = {.rows = own.count(), .columns = part.shape.columns}});
  }
  return cut;
}

void cut_frame(StreamView stream,
               const CodecSetting& setting,
               const std::vector<CodecPart>& parts,
               const Tensor& frame,
               const std::vector<MatrixRows>& rows,
               const Tensor& slice) {
  SL_CHECK(traits_of(setting.kind).cuts_by_rows && !adds(setting.kind), name_of(setting.kind));
  SL_CHECK_EQ(frame.bytes(), frame_bytes(setting, parts));
  std::vector<std::size_t> offsets;
  std::size_t offset = sizeof(FrameHeader);
  for (const CodecPart& part : parts) {
    offsets.push_back(offset);
    offset += payload_bytes(setting, part.shape);
  }
  const std::size_t slice_bytes = frame_bytes(setting, parts_of_rows(parts, rows));
  begin_frame(stream,
              bytes_at(slice, 0, slice_bytes),
              setting.kind,
              static_cast<std::size_t>(setting.bits));
  std::size_t to = sizeof(FrameHeader);
  const auto copy = [&](std::size_t from, std::size_t bytes) {
    cast(stream, bytes_at(frame, from, bytes), bytes_at(slice, to, bytes));
    to += bytes;
  };
  for (const MatrixRows& own : rows) {
    const MatrixShape& shape = parts[own.matrix].shape;
    const Payload whole = payload_of(setting, shape);
    const auto count = static_cast<std::size_t>(shape.rows);
    const auto first = static_cast<std::size_t>(own.first);
    const auto taken = static_cast<std::size_t>(own.count());
    const std::size_t scales = offsets[own.matrix];
    const std::size_t of_rows = scales_of_rows(setting, shape, whole);
    copy(scales + of_rows / count * first, of_rows / count * taken);
    copy(scales + of_rows, whole.scales - of_rows);
    copy(scales + whole.scales + whole.codes / count * first, whole.codes / count * taken);
  }
  SL_CHECK_EQ(to, slice_bytes);
}

}  // namespace slackline
