#include "tools/record/event_record.h"

#include <bit>
#include <cstring>
#include <span>

#include "core/hash.h"

namespace slackline {

namespace {

static_assert(std::endian::native == std::endian::little);

enum class WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

template <typename T>
void append_raw(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void append_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80U) {
    out.push_back(static_cast<char>((value & 0x7fU) | 0x80U));
    value >>= 7U;
  }
  out.push_back(static_cast<char>(value));
}

void append_key(std::string& out, std::uint32_t field, WireType type) {
  append_varint(out, (field << 3U) | static_cast<std::uint32_t>(type));
}

void append_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  append_key(out, field, WireType::bytes);
  append_varint(out, bytes.size());
  out.append(bytes);
}

std::string event_of(double wall_time) {
  std::string event;
  append_key(event, 1, WireType::fixed64);
  append_raw(event, wall_time);
  return event;
}

// Rotated and offset, so that checksums of data that holds checksums stay sound.
std::uint32_t masked_checksum(std::string_view bytes) {
  const std::uint32_t checksum = crc32c(std::as_bytes(std::span(bytes)));
  return std::rotr(checksum, 15) + 0xa282ead8U;
}

std::string framed(std::string_view data) {
  std::string record;
  append_raw(record, std::uint64_t{data.size()});
  append_raw(record, masked_checksum(record));
  record.append(data);
  append_raw(record, masked_checksum(data));
  return record;
}

}  // namespace

std::string file_version_record(double wall_time) {
  std::string event = event_of(wall_time);
  append_bytes(event, 3, "brain.Event:2");
  return framed(event);
}

std::string scalar_record(const ScalarEvent& scalar) {
  std::string value;
  append_bytes(value, 1, scalar.tag);
  append_key(value, 2, WireType::fixed32);
  append_raw(value, scalar.value);

  std::string summary;
  append_bytes(summary, 1, value);

  std::string event = event_of(scalar.wall_time);
  append_key(event, 2, WireType::varint);
  append_varint(event, static_cast<std::uint64_t>(scalar.step));
  append_bytes(event, 5, summary);
  return framed(event);
}

}  // namespace slackline
