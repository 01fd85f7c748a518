#include "core/random_permutation.h"

#include <cmath>
#include <limits>
#include <string>

#include "core/check.h"

namespace slackline {

std::uint32_t RandomPermutation::side_of(std::uint64_t n) {
  auto side = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (side * side < n) {
    ++side;
  }
  return static_cast<std::uint32_t>(side);
}

RandomPermutation::RandomPermutation(PhiloxKey key, std::uint64_t n)
    : RandomPermutation(key, n, side_of(n)) {
  SL_CHECK(n >= 1 && n <= std::numeric_limits<std::uint32_t>::max(),
           "a permutation of " + std::to_string(n));
}

}  // namespace slackline
