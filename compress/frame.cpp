#include "compress/frame.h"

#include <cstring>

#include <fmt/format.h>

#include "core/error.h"

namespace slackline {

std::byte* begin_frame(const Tensor& frame, CodecKind kind, std::uint32_t parameter) {
  SL_CHECK(frame.dtype() == DType::u8 && frame.bytes() >= sizeof(FrameHeader),
           "a frame of " + std::to_string(frame.bytes()) + " bytes");
  const FrameHeader header{
      .kind = static_cast<std::uint32_t>(kind),
      .parameter = parameter,
      .payload_bytes = static_cast<std::uint32_t>(frame.bytes() - sizeof(FrameHeader))};
  std::memcpy(frame.raw(), &header, sizeof(header));
  return static_cast<std::byte*>(frame.raw()) + sizeof(header);
}

const std::byte* open_frame(const Tensor& frame,
                            CodecKind kind,
                            std::uint32_t parameter,
                            std::size_t bytes) {
  if (frame.bytes() != bytes) {
    throw CommError(fmt::format("a compressed message has {} bytes where {} of {} are due",
                                frame.bytes(),
                                name_of(kind),
                                bytes));
  }
  FrameHeader header;
  std::memcpy(&header, frame.raw(), sizeof(header));
  const FrameHeader due{.kind = static_cast<std::uint32_t>(kind),
                        .parameter = parameter,
                        .payload_bytes = static_cast<std::uint32_t>(bytes - sizeof(header))};
  if (std::memcmp(&header, &due, sizeof(header)) != 0) {
    throw CommError(fmt::format(
        "a compressed message begins with {:#x}, {}, {}, {} where {:#x}, {} ({}), {}, {} are due "
        "(magic, codec, parameter, bytes): the ranks' plans differ, or it was damaged",
        header.magic,
        header.kind,
        header.parameter,
        header.payload_bytes,
        due.magic,
        due.kind,
        name_of(kind),
        due.parameter,
        due.payload_bytes));
  }
  return static_cast<const std::byte*>(frame.raw()) + sizeof(header);
}

}  // namespace slackline
