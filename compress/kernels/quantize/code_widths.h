#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

namespace slackline {

// The bits that a code may have, rising.
inline constexpr std::array<int, 4> kCodeWidths = {2, 3, 4, 8};

// Returns where in kCodeWidths it stands, or their number.
[[nodiscard]] constexpr std::ptrdiff_t width_index(std::int64_t bits) {
  return std::ranges::find(kCodeWidths, bits) - kCodeWidths.begin();
}

[[nodiscard]] constexpr bool is_code_width(std::int64_t bits) {
  return width_index(bits) < std::ssize(kCodeWidths);
}

// Calls body with the width as a constant: std::integral_constant<int, bits>. REQUIRES:
// is_code_width(bits).
template <typename Body>
void with_code_width(int bits, const Body& body) {
  bits == 2   ? body(std::integral_constant<int, 2>())
  : bits == 3 ? body(std::integral_constant<int, 3>())
  : bits == 4 ? body(std::integral_constant<int, 4>())
              : body(std::integral_constant<int, 8>());
}

}  // namespace slackline
