#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/support/guarded_tensor.h"

namespace slackline::testing {

// What rank `rank` brings as element i.
using RankValue = double (*)(int rank, std::size_t i);

// Numbers of very different sizes, so that another order of additions gives other bits.
inline double rough(int rank, std::size_t i) {
  const std::size_t mixed = (static_cast<std::size_t>(rank) * 2654435761U + i * 40503U) % 1009;
  const double sign = mixed % 2 == 0 ? 1.0 : -1.0;
  return sign * (1.0 + static_cast<double>(mixed) / 1009.0) *
         static_cast<double>(std::size_t{1} << (mixed % 29));
}

inline std::vector<double> values_of(RankValue value, int rank, std::size_t count) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = value(rank, i);
  }
  return values;
}

[[nodiscard]] inline GuardedTensor make_tensor(DType dtype, std::size_t count) {
  return {dtype, Shape{static_cast<std::int64_t>(count)}};
}

}  // namespace slackline::testing
