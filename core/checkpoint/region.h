#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/tensor/shape.h"

namespace slackline {

// A hyper-rectangle of a logical tensor: elements [start, start + shape), one start per dimension.
struct Region {
  std::vector<std::int64_t> start;
  Shape shape;

  bool operator==(const Region& other) const = default;
};

[[nodiscard]] Region whole_region(const Shape& shape);

[[nodiscard]] bool is_whole(const Region& region, const Shape& logical);

// `region` has the tensor's rank and lies inside it. Never overflows, whatever the numbers.
[[nodiscard]] bool is_inside(const Region& region, const Shape& logical);

// What two regions of one tensor share; nothing when that has no element.
[[nodiscard]] std::optional<Region> intersection(const Region& a, const Region& b);

// Where a rank has a rectangle in its own memory: `region` of a local row-major tensor of `shape`.
// The memory holds that tensor's flat elements from `first` on: all of them, or a range (an
// optimizer's slice of a tensor).
struct LocalPlace {
  Shape shape;
  Region region;
  std::size_t first = 0;
};

// The region lies inside the shape, and memory of `num_elements` holds all of it.
[[nodiscard]] bool is_held(const LocalPlace& place, std::size_t num_elements);

// A point of a row-major array whose flat elements from `first` on lie at `data`.
struct ArrayPoint {
  std::byte* data;
  Shape shape;
  std::vector<std::int64_t> point;
  std::size_t first = 0;
};

// a - b + c, index by index: the point `a` of a rectangle that begins at `b`, where it begins at
// `c`.
[[nodiscard]] std::vector<std::int64_t> moved(const std::vector<std::int64_t>& a,
                                              const std::vector<std::int64_t>& b,
                                              const std::vector<std::int64_t>& c);

// Copies the rectangle of shape `extent` that begins at `source` to where `destination` points, in
// the longest runs that are contiguous in both. Source is only read.
// REQUIRES: the rectangle lies inside both arrays and what is held of them; they do not overlap.
void copy_rectangle(const ArrayPoint& source,
                    const ArrayPoint& destination,
                    const Shape& extent,
                    std::size_t element_bytes);

}  // namespace slackline
