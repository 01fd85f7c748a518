#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace slackline::megatron {

// Megatron's indexed data set. PREFIX.bin holds token ids back to back and nothing else.
// PREFIX.idx, little-endian, for S sequences and E document boundaries:
//
//   offset      type     content
//   0           9 bytes  "MMIDIDX" and two NULs
//   9           u64      version, 1
//   17          u8       code of the token type
//   18          u64      S
//   26          u64      E, the number of documents + 1
//   34          i32[S]   tokens in each sequence
//   34+4S       i64[S]   byte offset of each sequence in .bin: the running sum of the lengths
//   34+12S      i64[E]   the first sequence of each document, then S
//   34+12S+8E   i8[S]    modes, only in multimodal sets
//
// The arrays begin at byte 34, so none of them is aligned.
constexpr std::array<char, 9> kMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kVersionOffset = 9;
constexpr std::size_t kTypeOffset = 17;
constexpr std::size_t kSequencesOffset = 18;
constexpr std::size_t kBoundariesOffset = 26;
constexpr std::size_t kArraysOffset = 34;

enum class TokenType : std::uint8_t { i32 = 4, i64 = 5, u16 = 8 };

// Megatron's own rule for the width of what it writes.
constexpr std::int64_t kFirstWideVocabulary = 65500;

}  // namespace slackline::megatron
