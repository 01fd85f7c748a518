#include "tools/report/html.h"

#include <algorithm>

namespace slackline::report {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool continues(unsigned char byte) {
  return (byte & 0xC0U) == 0x80U;
}

// The length of the UTF-8 sequence that `text` starts with; 0 where it is none. The second byte's
// range excludes overlong forms, surrogates and what lies beyond U+10FFFF.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    return 1;
  }
  const std::size_t length = lead < 0xC2   ? 0
                             : lead < 0xE0 ? 2
                             : lead < 0xF0 ? 3
                             : lead < 0xF5 ? 4
                                           : 0;
  if (length == 0 || text.size() < length) {
    return 0;
  }
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) {
    return 0;
  }
  for (std::size_t i = 2; i < length; ++i) {
    if (!continues(byte(i))) {
      return 0;
    }
  }
  return length;
}

std::string_view escaped(char character) {
  switch (character) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return {};
  }
}

bool is_control(char character) {
  const auto byte = static_cast<unsigned char>(character);
  return (byte < 0x20 && character != '\n' && character != '\t') || byte == 0x7F;
}

}  // namespace

Html text_of(std::string_view text) {
  std::string html;
  html.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const std::string_view entity = escaped(text.front());
    if (length == 0 || is_control(text.front())) {
      html += kReplacement;
    } else if (!entity.empty()) {
      html += entity;
    } else {
      html += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return Html(std::move(html));
}

Html element(std::string_view name, const Attributes& attributes, const Html& content) {
  std::string html = "<";
  html += name;
  for (const auto& [attribute, value] : attributes) {
    html += ' ';
    html += attribute;
    html += "=\"";
    html += text_of(value).str();
    html += '"';
  }
  html += '>';
  html += content.str();
  html += "</";
  html += name;
  html += '>';
  return Html(std::move(html));
}

Html text_element(std::string_view name, std::string_view text) {
  return element(name, {}, text_of(text));
}

Html table(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows) {
  const auto cell = [&](std::string_view name, std::size_t column, std::string_view text) {
    const bool right = column < columns.size() && columns[column].align == Align::right;
    return element(name, right ? Attributes{{"class", "number"}} : Attributes{}, text_of(text));
  };
  Html head;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    head += cell("th", i, columns[i].name);
  }
  Html body;
  for (const std::vector<std::string>& row : rows) {
    Html cells;
    for (std::size_t i = 0; i < row.size(); ++i) {
      cells += cell("td", i, row[i]);
    }
    body += element("tr", {}, cells);
  }
  Html content = element("thead", {}, element("tr", {}, head));
  content += element("tbody", {}, body);
  return element("div", {{"class", "scroll"}}, element("table", {}, content));
}

Html notice(std::string_view text) {
  return element("p", {{"class", "notice"}}, text_of(text));
}

}  // namespace slackline::report
