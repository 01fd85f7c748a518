#include <algorithm>
#include <cctype>

#include "core/json_reader.h"

namespace slackline {

namespace {

// Edits (insert, delete, replace, swap of neighbours) that turn one word into the other, upper and
// lower case taken as equal: the optimal string alignment distance, three rows at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  };
  std::vector<std::size_t> before;
  std::vector<std::size_t> above(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    above[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> row(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min(
          {above[j] + 1, row[j - 1] + 1, above[j - 1] + (same(a[i - 1], b[j - 1]) ? 0U : 1U)});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = std::move(above);
    above = std::move(row);
  }
  return above[b.size()];
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view word, std::span<const std::string> known) {
  const std::string* nearest = nullptr;
  std::size_t fewest = 0;
  for (const std::string& name : known) {
    // A third of the letters, and one edit in short names: beyond that it is another word.
    const std::size_t most = std::max<std::size_t>(1, std::max(word.size(), name.size()) / 3);
    const std::size_t least =
        std::max(word.size(), name.size()) - std::min(word.size(), name.size());
    const std::size_t edits = least > most ? least : edit_distance(word, name);
    if (edits <= most && (nearest == nullptr || edits < fewest)) {
      nearest = &name;
      fewest = edits;
    }
  }
  return nearest == nullptr ? std::nullopt : std::optional<std::string>(*nearest);
}

}  // namespace slackline
