#include "compress/frame.h"

#include <bit>

#include <fmt/format.h>

#include "compress/kernels/message_checks.h"
#include "core/error.h"

namespace slackline {

namespace {

MessageWords words_of(CodecKind kind, std::size_t parameter, std::size_t frame_bytes) {
  return std::bit_cast<MessageWords>(
      FrameHeader{.kind = static_cast<std::uint32_t>(kind),
                  .parameter = static_cast<std::uint32_t>(parameter),
                  .payload_bytes = static_cast<std::uint32_t>(frame_bytes - sizeof(FrameHeader))});
}

// The version of the frames that begin with a magic; 0 where it is none.
std::uint32_t version_of(std::uint32_t magic) {
  constexpr std::uint32_t kVersionMask = 0xff;
  if (magic == FrameHeader::kMagicOfVersion1) {
    return 1;
  }
  const bool is_magic = (magic & ~kVersionMask) == (FrameHeader::kMagic & ~kVersionMask);
  return is_magic ? magic & kVersionMask : 0;
}

[[noreturn]] void refuse_header(const DeviceFault& fault) {
  const auto& words = fault.words;
  const auto found =
      std::bit_cast<FrameHeader>(MessageWords{words[0], words[1], words[2], words[3]});
  const auto due = std::bit_cast<FrameHeader>(MessageWords{words[4], words[5], words[6], words[7]});
  const std::uint32_t version = version_of(found.magic);
  if (version != 0 && version != FrameHeader::kVersion) {
    throw CommError(fmt::format(
        "a compressed message of {} has frames of version {} where version {} is due: the ranks "
        "run different builds of slackline",
        name_of(static_cast<CodecKind>(due.kind)),
        version,
        FrameHeader::kVersion));
  }
  throw CommError(fmt::format(
      "a compressed message begins with {:#x}, {}, {}, {} where {:#x}, {} ({}), {}, {} are due "
      "(magic, codec, parameter, bytes): the ranks' plans differ, or it was damaged",
      found.magic,
      found.kind,
      found.parameter,
      found.payload_bytes,
      due.magic,
      due.kind,
      name_of(static_cast<CodecKind>(due.kind)),
      due.parameter,
      due.payload_bytes));
}

}  // namespace

void begin_frame(StreamView stream, const Tensor& frame, CodecKind kind, std::size_t parameter) {
  write_words(stream, frame, words_of(kind, parameter, frame.bytes()));
}

void open_frame(StreamView stream,
                const Tensor& frame,
                CodecKind kind,
                std::size_t parameter,
                std::size_t bytes) {
  if (frame.bytes() != bytes) {
    throw CommError(fmt::format("a compressed message has {} bytes where {} of {} are due",
                                frame.bytes(),
                                name_of(kind),
                                bytes));
  }
  check_words(stream, frame, words_of(kind, parameter, bytes), refuse_header);
}

Tensor frame_part(const Tensor& frame, std::size_t offset, DType dtype, const Shape& shape) {
  return {static_cast<std::byte*>(frame.raw()) + offset, dtype, shape, frame.device()};
}

Tensor bytes_at(const Tensor& frame, std::size_t offset, std::size_t bytes) {
  return frame_part(frame, offset, DType::u8, {static_cast<std::int64_t>(bytes)});
}

}  // namespace slackline
