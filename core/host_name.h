#pragma once

#include <string>

namespace slackline {

// Returns this machine's name, as the system knows it; "localhost" where it has none.
[[nodiscard]] std::string host_name();

}  // namespace slackline
