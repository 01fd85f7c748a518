#pragma once

#include <string>
#include <vector>

#include "core/comm/communicator.h"

namespace slackline {

// Every rank's text, by rank, on every rank. Texts may differ in length. Blocks.
[[nodiscard]] std::vector<std::string> exchange_texts(Communicator& group,
                                                      const std::string& text,
                                                      const char* what);

// The root's text on every rank. Blocks.
[[nodiscard]] std::string broadcast_text(Communicator& group,
                                         int root,
                                         const std::string& text,
                                         const char* what);

}  // namespace slackline
