#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/codec_setting.h"
#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// The first 16 bytes of a frame: who made it and for how much, in the machine's byte order.
//   magic "SLF" with the version of all codecs' frames, codec kind, then the codec's own parameter
//   (rank, kept elements, bits, ...) and the bytes that follow.
// Version 1, whose magic ended in 'R' in place of a number, had indices of top_k as u32.
struct FrameHeader {
  static constexpr std::uint32_t kVersion = 2;
  static constexpr std::uint32_t kMagic = 0x534c4600 | kVersion;
  static constexpr std::uint32_t kMagicOfVersion1 = 0x534c4652;

  std::uint32_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint32_t parameter = 0;
  std::uint32_t payload_bytes = 0;
};

static_assert(sizeof(FrameHeader) == 16);

// Writes the header. REQUIRES: `frame` is u8 and holds it; the parameter fits 32 bits.
void begin_frame(StreamView stream, const Tensor& frame, CodecKind kind, std::size_t parameter);

// Checks size and header of what arrived; throws CommError that tells what was expected, on the
// CUDA device for the header at the next Stream::synchronize(). `bytes` is what a frame of this
// setting has, header included.
void open_frame(StreamView stream,
                const Tensor& frame,
                CodecKind kind,
                std::size_t parameter,
                std::size_t bytes);

// `shape` elements of `dtype`, `offset` bytes into a frame.
[[nodiscard]] Tensor frame_part(const Tensor& frame,
                                std::size_t offset,
                                DType dtype,
                                const Shape& shape);

[[nodiscard]] Tensor bytes_at(const Tensor& frame, std::size_t offset, std::size_t bytes);

}  // namespace slackline
