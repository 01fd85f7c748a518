#pragma once

#include <string>

namespace slackline {

// Returns `text` between double quotes, escaped for JSON.
[[nodiscard]] std::string json_string(const std::string& text);

// Returns the shortest text that reads as this number; "null" of what JSON has no number for.
[[nodiscard]] std::string json_number(double value);

}  // namespace slackline
