#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slackline::report {

// A piece of an HTML document. It is made of words of this program (literal) and of text that was
// escaped (text_of, attribute values); there is no other way, so that nothing that comes from a
// file can become markup.
class Html {
 public:
  Html() = default;

  template <std::size_t N>
  [[nodiscard]] static Html literal(const char (&html)[N]) {
    return Html(std::string(html, N - 1));
  }

  Html& operator+=(const Html& more) {
    text_ += more.text_;
    return *this;
  }

  [[nodiscard]] bool empty() const { return text_.empty(); }

  [[nodiscard]] const std::string& str() const { return text_; }

 private:
  explicit Html(std::string text) : text_(std::move(text)) {}

  friend Html text_of(std::string_view text);
  friend Html element(std::string_view name,
                      const std::vector<std::pair<std::string_view, std::string>>& attributes,
                      const Html& content);

  std::string text_;
};

// Name and value; the value is escaped, the name is a literal.
using Attributes = std::vector<std::pair<std::string_view, std::string>>;

// `text` as it should be read: the characters that mean something in HTML are escaped for it, and
// before that what shown_lines() escapes (core/shown_text.h).
[[nodiscard]] Html text_of(std::string_view text);

// <name attributes>content</name>. REQUIRES: `name` is a literal, and no void element.
[[nodiscard]] Html element(std::string_view name,
                           const Attributes& attributes,
                           const Html& content = {});

// The same around text.
[[nodiscard]] Html text_element(std::string_view name, std::string_view text);

// Tables scroll inside their box where a screen is narrow, and wrap in print.
enum class Align { left, right };

struct Column {
  std::string name{};
  Align align = Align::left;
};

[[nodiscard]] Html table(const std::vector<Column>& columns,
                         const std::vector<std::vector<std::string>>& rows);

// A remark that the reader should not miss.
[[nodiscard]] Html notice(std::string_view text);

}  // namespace slackline::report
