#pragma once

#include <string>

namespace slackline {

// Returns `text` between double quotes, escaped for JSON.
[[nodiscard]] std::string json_string(const std::string& text);

}  // namespace slackline
