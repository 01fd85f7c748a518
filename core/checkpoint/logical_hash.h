#pragma once

#include <string>

#include "core/checkpoint/checkpoint.h"

namespace slackline {

// SHA-256 of the logical fp32 weights, the same for every layout and sharding: for each tensor
// under weights/ in byte order of its name, the name without the group and a newline, the
// dimensions joined by commas and a newline, then the little-endian bytes. 64 hexadecimal digits.
// Throws FileError for weights that are not fp32, or when there are none.
[[nodiscard]] std::string logical_weights_sha256(Checkpoint& checkpoint);

}  // namespace slackline
