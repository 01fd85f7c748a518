#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace slackline {

// The items as text, with the separator between them. (fmt::join makes gcc 12 warn.)
template <typename Item>
[[nodiscard]] std::string joined(const std::vector<Item>& items, std::string_view separator) {
  std::string text;
  for (const Item& item : items) {
    text += fmt::format("{}{}", text.empty() ? "" : separator, item);
  }
  return text;
}

}  // namespace slackline
