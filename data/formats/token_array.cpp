#include "data/formats/token_array.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <type_traits>

#include <fmt/format.h>

#include "core/check.h"
#include "core/error.h"

namespace slackline {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read as they stand");

// Calls `visit` with a value of the type that the width stands for.
template <typename Visit>
auto with_type(TokenWidth width, Visit&& visit) {
  switch (width) {
    case TokenWidth::two:
      return visit(std::uint16_t{});
    case TokenWidth::four:
      return visit(std::int32_t{});
    case TokenWidth::eight:
      return visit(std::int64_t{});
  }
  SL_CHECK(false, "unknown token width");
}

// Blocks are looked at as a whole, by a loop without a branch; only the block that holds a token
// beyond the vocabulary is looked at again.
template <typename T>
std::optional<std::uint64_t> find_at_least(std::span<const std::byte> bytes,
                                           std::uint64_t size,
                                           std::uint64_t limit) {
  using Unsigned = std::make_unsigned_t<T>;  // negative tokens are beyond every vocabulary
  if (limit > std::numeric_limits<Unsigned>::max()) {
    return std::nullopt;
  }
  constexpr std::uint64_t kBlock = 4096;
  for (std::uint64_t start = 0; start < size; start += kBlock) {
    const std::uint64_t end = std::min(start + kBlock, size);
    Unsigned largest = 0;
    for (std::uint64_t i = start; i < end; ++i) {
      largest = std::max(largest, value_at<Unsigned>(bytes, i * sizeof(T)));
    }
    if (largest >= limit) {
      std::uint64_t position = start;
      while (value_at<Unsigned>(bytes, position * sizeof(T)) < limit) {
        ++position;
      }
      return position;
    }
  }
  return std::nullopt;
}

}  // namespace

void TokenArray::read(std::uint64_t position, std::span<TokenId> tokens) const {
  SL_CHECK(position <= size() && tokens.size() <= size() - position, "tokens beyond the file");
  with_type(width_, [&](auto zero) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] =
          static_cast<TokenId>(value_at<decltype(zero)>(bytes_, (position + i) * sizeof zero));
    }
  });
}

void TokenArray::require_below(std::int64_t vocabulary,
                               const std::string& path,
                               std::uint64_t array_offset) const {
  with_type(width_, [&](auto zero) {
    using T = decltype(zero);
    const std::optional<std::uint64_t> position =
        find_at_least<T>(bytes_, size(), static_cast<std::uint64_t>(vocabulary));
    if (position) {
      throw FileError(
          fmt::format("{}: offset {}: token {} at position {} is not in the vocabulary (0 to {})",
                      path,
                      array_offset + *position * sizeof(T),
                      value_at<T>(bytes_, *position * sizeof(T)),
                      *position,
                      vocabulary - 1));
    }
  });
}

}  // namespace slackline
