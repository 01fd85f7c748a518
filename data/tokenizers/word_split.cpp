#include "data/tokenizers/word_split.h"

#include <algorithm>
#include <array>

#include "data/tokenizers/utf8.h"

namespace slackline {
namespace {

constexpr char32_t kLongS = 0x17f;  // the one character that is an s when case is ignored

bool is_line_end(char32_t character) {
  return character == U'\r' || character == U'\n';
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Bytes of the contraction at `position`, 0 where there is none. The order is the pattern's.
std::size_t contraction(WordPattern pattern, std::string_view text, std::size_t position) {
  constexpr std::array<std::string_view, 7> kEndings = {"s", "t", "re", "ve", "m", "ll", "d"};
  if (text[position] != '\'' || position + 1 == text.size()) {
    return 0;
  }
  const bool any_case = pattern == WordPattern::cl100k;
  const auto in_case = [any_case](char c) { return any_case ? lower(c) : c; };
  for (const std::string_view ending : kEndings) {
    if (std::ranges::equal(text.substr(position + 1, ending.size()), ending, {}, in_case)) {
      return 1 + ending.size();
    }
  }
  const Utf8Char next = char_at(text, position + 1);
  return any_case && next.value == kLongS ? 1 + next.bytes : 0;
}

// The end of the run of characters of one kind, and where its last character begins.
struct Run {
  std::size_t end = 0;
  std::size_t last = 0;
  std::size_t line_end = 0;  // behind the last \r or \n; 0: none
};

constexpr std::size_t kAnyLength = ~std::size_t{0};

Run run_of(CharKind kind,
           std::string_view text,
           std::size_t position,
           std::size_t longest = kAnyLength) {
  Run run{.end = position, .last = position};
  for (std::size_t length = 0; run.end < text.size() && length < longest; ++length) {
    const Utf8Char next = char_at(text, run.end);
    if (kind_of(next.value) != kind) {
      break;
    }
    run.last = run.end;
    run.end += next.bytes;
    if (is_line_end(next.value)) {
      run.line_end = run.end;
    }
  }
  return run;
}

// The end of the white space that begins at `position`: all of it, or, before a word, all but its
// last character where there are several.
std::size_t space_end(const Run& run, std::string_view text, std::size_t position) {
  const bool leaves_one = run.end < text.size() && run.last > position;
  return leaves_one ? run.last : run.end;
}

std::size_t gpt2_word_end(std::string_view text, std::size_t position) {
  std::size_t start = position;
  if (text[position] == ' ' && position + 1 < text.size()) {
    start = position + 1;
  }
  const CharKind kind = kind_of(char_at(text, start).value);
  if (kind != CharKind::space) {
    return run_of(kind, text, start).end;
  }
  return space_end(run_of(CharKind::space, text, position), text, position);
}

std::size_t cl100k_word_end(std::string_view text, std::size_t position) {
  constexpr std::size_t kDigits = 3;
  const Utf8Char first = char_at(text, position);
  const CharKind kind = kind_of(first.value);
  if (kind == CharKind::letter) {
    return run_of(CharKind::letter, text, position).end;
  }
  if (kind == CharKind::number) {
    return run_of(CharKind::number, text, position, kDigits).end;
  }
  const std::size_t second = position + first.bytes;
  if (!is_line_end(first.value)) {
    const Run letters = run_of(CharKind::letter, text, second);
    if (letters.end > second) {
      return letters.end;
    }
  }
  std::size_t end = run_of(CharKind::other, text, first.value == U' ' ? second : position).end;
  if (end > second || kind == CharKind::other) {
    while (end < text.size() && is_line_end(static_cast<unsigned char>(text[end]))) {
      ++end;
    }
    return end;
  }
  const Run space = run_of(CharKind::space, text, position);
  return space.line_end > 0 ? space.line_end : space_end(space, text, position);
}

}  // namespace

std::string_view regular_expression(WordPattern pattern) {
  return pattern == WordPattern::gpt2
             ? R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"
             : R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
               R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

std::size_t word_end(WordPattern pattern, std::string_view text, std::size_t position) {
  if (const std::size_t bytes = contraction(pattern, text, position); bytes > 0) {
    return position + bytes;
  }
  return pattern == WordPattern::gpt2 ? gpt2_word_end(text, position)
                                      : cl100k_word_end(text, position);
}

// An apostrophe and the letter after it may be a contraction, and cl100k's letters take any
// character before them; white space before a word depends on what it is.
bool always_apart(WordPattern pattern, char32_t before, char32_t after) {
  const CharKind left = kind_of(before);
  const CharKind right = kind_of(after);
  if (left == right || (left == CharKind::other && right == CharKind::letter)) {
    return false;
  }
  if (pattern == WordPattern::gpt2) {
    return left != CharKind::space;
  }
  if (left == CharKind::space) {
    return is_line_end(before);
  }
  return left != CharKind::other || !is_line_end(after);
}

}  // namespace slackline
