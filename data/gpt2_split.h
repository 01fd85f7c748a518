#pragma once

#include <cstddef>
#include <string_view>

namespace slackline {

// GPT-2 cuts text into words before it merges bytes, by the pattern
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// tried from left to right: an English contraction; a run of letters, of digits or of other
// characters, each with the one space before it; white space up to the last character before a
// word; white space. Written out by hand here: ten times faster than a regular expression engine,
// and these are the same words.

// The end of the word that begins at `position`. REQUIRES: text is UTF-8, position < size.
[[nodiscard]] std::size_t gpt2_word_end(std::string_view text, std::size_t position);

// The last place inside `text` where a word ends and another begins whatever follows the text, 0
// where there is none. REQUIRES: text is UTF-8.
[[nodiscard]] std::size_t gpt2_last_word_start(std::string_view text);

}  // namespace slackline
