#pragma once

#include <cstddef>

#include "core/checkpoint/contents.h"
#include "core/tensor/buffer.h"

namespace slackline {

// Memory that staged() needs for these contents.
[[nodiscard]] std::size_t staging_bytes(const CheckpointContents& contents);

// The same contents with every piece copied into `memory`, one behind the other and none with a
// place any more. `memory` grows when it is too small. The result views it.
[[nodiscard]] CheckpointContents staged(const CheckpointContents& contents, Buffer& memory);

}  // namespace slackline
