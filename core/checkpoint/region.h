#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/shape.h"

namespace slackline {

// A hyper-rectangle of a logical tensor: elements [start, start + shape), one start per dimension.
struct Region {
  std::vector<std::int64_t> start;
  Shape shape;
};

[[nodiscard]] Region whole_region(const Shape& shape);

[[nodiscard]] bool is_whole(const Region& region, const Shape& logical);

// `region` has the tensor's rank and lies inside it. Never overflows, whatever the numbers.
[[nodiscard]] bool is_inside(const Region& region, const Shape& logical);

// What two regions of one tensor share; nothing when that has no element.
[[nodiscard]] std::optional<Region> intersection(const Region& a, const Region& b);

// One region's elements in row-major memory.
struct RegionMemory {
  std::byte* data;
  const Region& region;
};

// Copies the elements of `part` (in coordinates of the logical tensor) from one region's memory to
// another's, in the longest runs that are contiguous in both. Source is only read.
// REQUIRES: `part` lies inside both regions; the memories do not overlap.
void copy_region(const Region& part,
                 const RegionMemory& source,
                 const RegionMemory& destination,
                 std::size_t element_bytes);

}  // namespace slackline
