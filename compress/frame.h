#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/codec_setting.h"
#include "core/tensor.h"

namespace slackline {

// The first 16 bytes of a frame: who made it and for how much, in the machine's byte order.
//   magic 0x534c4652, codec kind, then the codec's own parameter (rank, kept elements, bits, ...)
//   and the bytes that follow.
struct FrameHeader {
  static constexpr std::uint32_t kMagic = 0x534c4652;

  std::uint32_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint32_t parameter = 0;
  std::uint32_t payload_bytes = 0;
};

static_assert(sizeof(FrameHeader) == 16);

// Writes the header and returns the payload. REQUIRES: `frame` is u8 and holds both.
std::byte* begin_frame(const Tensor& frame, CodecKind kind, std::uint32_t parameter);

// Checks size and header of what arrived and returns the payload; throws CommError that tells what
// was expected. `bytes` is what a frame of this setting has, header included.
const std::byte* open_frame(const Tensor& frame,
                            CodecKind kind,
                            std::uint32_t parameter,
                            std::size_t bytes);

}  // namespace slackline
