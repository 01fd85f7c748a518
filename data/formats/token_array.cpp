#include "data/formats/token_array.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/check.h"

namespace slackline {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read as they stand");

template <typename T>
T load(std::span<const std::byte> bytes, std::uint64_t position) {
  T token = 0;
  std::memcpy(&token, bytes.data() + position * sizeof(T), sizeof(T));
  return token;
}

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
      largest = std::max(largest, static_cast<Unsigned>(load<T>(bytes, i)));
    }
    if (largest >= limit) {
      std::uint64_t position = start;
      while (static_cast<Unsigned>(load<T>(bytes, position)) < limit) {
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
      tokens[i] = static_cast<TokenId>(load<decltype(zero)>(bytes_, position + i));
    }
  });
}

std::int64_t TokenArray::at(std::uint64_t position) const {
  SL_CHECK(position < size(), "token beyond the file");
  return with_type(width_, [&](auto zero) {
    return static_cast<std::int64_t>(load<decltype(zero)>(bytes_, position));
  });
}

std::optional<std::uint64_t> TokenArray::find_beyond(std::int64_t vocabulary) const {
  return with_type(width_, [&](auto zero) {
    return find_at_least<decltype(zero)>(bytes_, size(), static_cast<std::uint64_t>(vocabulary));
  });
}

}  // namespace slackline
