#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace slackline {

// The items, texts or integers, with the separator between them. (fmt::join makes gcc 12 warn.)
template <typename Item>
[[nodiscard]] std::string joined(const std::vector<Item>& items, std::string_view separator) {
  std::string text;
  bool first = true;
  for (const Item& item : items) {
    text += first ? std::string_view() : separator;
    first = false;
    if constexpr (std::is_integral_v<Item>) {
      text += std::to_string(item);
    } else {
      text += item;
    }
  }
  return text;
}

// The text up to its first line break. Hints stand behind it, for whoever a message is of.
[[nodiscard]] inline std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace slackline
