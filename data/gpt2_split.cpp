#include "data/gpt2_split.h"

#include <array>

#include "data/utf8.h"

namespace slackline {
namespace {

// Bytes of the contraction at `position`, 0 where there is none. The order is the pattern's.
std::size_t contraction(std::string_view text, std::size_t position) {
  constexpr std::array<std::string_view, 7> kEndings = {"s", "t", "re", "ve", "m", "ll", "d"};
  if (text[position] != '\'') {
    return 0;
  }
  for (const std::string_view ending : kEndings) {
    if (text.substr(position + 1, ending.size()) == ending) {
      return 1 + ending.size();
    }
  }
  return 0;
}

// The end of the run of characters of one kind, and where its last character begins.
struct Run {
  std::size_t end = 0;
  std::size_t last = 0;
};

Run run_of(CharKind kind, std::string_view text, std::size_t position) {
  Run run{.end = position, .last = position};
  while (run.end < text.size()) {
    const Utf8Char next = char_at(text, run.end);
    if (kind_of(next.value) != kind) {
      break;
    }
    run.last = run.end;
    run.end += next.bytes;
  }
  return run;
}

// Whether a word ends between two neighbours, whatever stands around them. An apostrophe and the
// letter after it may be a contraction; white space before a word depends on what it is.
bool always_apart(CharKind before, CharKind after) {
  const bool may_contract = before == CharKind::other && after == CharKind::letter;
  return before != CharKind::space && before != after && !may_contract;
}

}  // namespace

std::size_t gpt2_word_end(std::string_view text, std::size_t position) {
  if (const std::size_t bytes = contraction(text, position); bytes > 0) {
    return position + bytes;
  }
  std::size_t start = position;
  if (text[position] == ' ' && position + 1 < text.size()) {
    start = position + 1;
  }
  const CharKind kind = kind_of(char_at(text, start).value);
  if (kind != CharKind::space) {
    return run_of(kind, text, start).end;
  }
  const Run run = run_of(CharKind::space, text, position);
  const bool leaves_one = run.end < text.size() && run.last > position;
  return leaves_one ? run.last : run.end;
}

std::size_t gpt2_last_word_start(std::string_view text) {
  if (text.empty()) {
    return 0;
  }
  Utf8Char after = char_before(text, text.size());
  std::size_t position = text.size() - after.bytes;
  while (position > 0) {
    const Utf8Char before = char_before(text, position);
    if (always_apart(kind_of(before.value), kind_of(after.value))) {
      return position;
    }
    position -= before.bytes;
    after = before;
  }
  return 0;
}

}  // namespace slackline
