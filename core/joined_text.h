#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace slackline {

// Joins the texts that `text_of` makes of items, with the separator between them.
template <typename Items, typename TextOf>
[[nodiscard]] std::string joined_of(const Items& items,
                                    std::string_view separator,
                                    const TextOf& text_of) {
  std::string text;
  bool first = true;
  for (const auto& item : items) {
    text += first ? std::string_view() : separator;
    first = false;
    text += text_of(item);
  }
  return text;
}

// The items, texts or integers, with the separator between them. (fmt::join makes gcc 12 warn.)
template <typename Items>
[[nodiscard]] std::string joined(const Items& items, std::string_view separator) {
  return joined_of(items, separator, [](const auto& item) {
    if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(item)>>) {
      return std::to_string(item);
    } else {
      return std::string_view(item);
    }
  });
}

// The text up to its first line break. Hints stand behind it, for whoever a message is of.
[[nodiscard]] inline std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace slackline
