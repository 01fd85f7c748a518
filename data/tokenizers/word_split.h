#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace slackline {

// Byte-level tokenizers cut text into words before they merge bytes, by a pattern that is tried
// from left to right. Two are known. GPT-2's:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// an English contraction; a run of letters, of digits or of other characters, each with the one
// space before it; white space up to the last character before a word; white space. And that of
// cl100k (GPT-4) and LLaMA 3:
//
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
//
// contractions in either case; letters with the one other character before them; digits in threes;
// other characters with the line ends behind them; white space up to its last line end. Written out
// by hand here: ten times faster than a regular expression engine, and these are the same words.
enum class WordPattern : std::uint8_t { gpt2, cl100k };

[[nodiscard]] std::string_view regular_expression(WordPattern pattern);

// The end of the word that begins at `position`. REQUIRES: text is UTF-8, position < size.
[[nodiscard]] std::size_t word_end(WordPattern pattern,
                                   std::string_view text,
                                   std::size_t position);

// Whether a word ends between two neighbouring characters, whatever stands around them.
[[nodiscard]] bool always_apart(WordPattern pattern, char32_t before, char32_t after);

}  // namespace slackline
