#include "core/json_string.h"

#include <cmath>

#include <fmt/format.h>

namespace slackline {

std::string json_string(const std::string& text) {
  constexpr char kHex[] = "0123456789abcdef";
  constexpr unsigned char kFirstPrintable = 0x20;
  std::string json = "\"";
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (character == '"' || character == '\\') {
      json += '\\';
      json += character;
    } else if (byte < kFirstPrintable) {
      json += "\\u00";
      json += kHex[byte / 16];
      json += kHex[byte % 16];
    } else {
      json += character;
    }
  }
  return json + "\"";
}

std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

}  // namespace slackline
