#pragma once

#include <memory>

#include "core/comm/communicator.h"

namespace slackline {

// A pointer to a communicator that somebody else owns, who keeps it for as long.
inline std::shared_ptr<Communicator> unowned(Communicator& communicator) {
  return {std::shared_ptr<void>(), &communicator};
}

}  // namespace slackline
