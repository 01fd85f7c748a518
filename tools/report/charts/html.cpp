#include "tools/report/charts/html.h"

#include <string>

#include "core/shown_text.h"

namespace slackline::report {

namespace {

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

}  // namespace

Html text_of(std::string_view text) {
  std::string html;
  html.reserve(text.size());
  for (const char character : shown_lines(text)) {
    const std::string_view entity = escaped(character);
    entity.empty() ? html.push_back(character) : void(html.append(entity));
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
