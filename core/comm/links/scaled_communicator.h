#pragma once

#include <memory>

#include "core/comm/communicator.h"

namespace slackline {

// A communicator whose messages of f32 and bf16 elements and of a codec's bytes (u8), which are
// all that a step of training sends, are cut to 1 / scale of their elements, at least one: for
// rehearsals of plans whose messages are too large for this machine. What travels is counted.
// Messages of other types are accounts and agreements, and travel whole (how long over emulated
// links: WorldOptions::message_scale). scale 1 gives `inner`
// back. REQUIRES: scale >= 1.
[[nodiscard]] std::unique_ptr<Communicator> scaled(std::unique_ptr<Communicator> inner,
                                                   double scale);

}  // namespace slackline
