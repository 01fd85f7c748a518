#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace slackline {

// Records of a TensorBoard event file. A record is framed as
//   u64 length | u32 masked CRC-32C of the length | data | u32 masked CRC-32C of the data,
// little-endian; the data is a protobuf message `Event` {wall_time = 1, step = 2, file_version = 3,
// summary = 5}, `summary` a `Summary` {repeated value = 1 of {tag = 1, simple_value = 2}}. Two
// small messages are written out here rather than generated: no schema to compile.

// The first record of every file. Times are seconds since 1970.
[[nodiscard]] std::string file_version_record(double wall_time);

struct ScalarEvent {
  double wall_time = 0.0;
  std::int64_t step = 0;
  std::string_view tag{};
  float value = 0.0F;
};

[[nodiscard]] std::string scalar_record(const ScalarEvent& event);

}  // namespace slackline
