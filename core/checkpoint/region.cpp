#include "core/checkpoint/region.h"

#include <algorithm>
#include <cstring>

namespace slackline {

namespace {

// Elements from the start of a region's memory to a point given in coordinates of the tensor.
std::size_t offset_of(const std::vector<std::int64_t>& point, const Region& region) {
  std::size_t offset = 0;
  for (std::size_t i = 0; i < point.size(); ++i) {
    const std::int64_t dim = region.shape.dims()[i];
    offset = offset * static_cast<std::size_t>(dim) +
             static_cast<std::size_t>(point[i] - region.start[i]);
  }
  return offset;
}

// Moves to the first element of the next run; false behind the last. Dimensions from `inner` on
// are inside a run.
bool advance(std::vector<std::int64_t>& point, const Region& part, std::size_t inner) {
  for (std::size_t i = inner; i-- > 0;) {
    if (++point[i] < part.start[i] + part.shape.dims()[i]) {
      return true;
    }
    point[i] = part.start[i];
  }
  return false;
}

}  // namespace

Region whole_region(const Shape& shape) {
  return {std::vector<std::int64_t>(shape.dims().size(), 0), shape};
}

bool is_whole(const Region& region, const Shape& logical) {
  return region.shape == logical &&
         std::all_of(
             region.start.begin(), region.start.end(), [](auto start) { return start == 0; });
}

bool is_inside(const Region& region, const Shape& logical) {
  if (region.shape.rank() != logical.rank() || region.start.size() != logical.dims().size()) {
    return false;
  }
  for (std::size_t i = 0; i < region.start.size(); ++i) {
    const std::int64_t dim = logical.dims()[i];
    if (region.start[i] < 0 || region.start[i] > dim ||
        region.shape.dims()[i] > dim - region.start[i]) {
      return false;
    }
  }
  return true;
}

std::optional<Region> intersection(const Region& a, const Region& b) {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> dims;
  for (std::size_t i = 0; i < a.start.size(); ++i) {
    const std::int64_t begin = std::max(a.start[i], b.start[i]);
    const std::int64_t end =
        std::min(a.start[i] + a.shape.dims()[i], b.start[i] + b.shape.dims()[i]);
    if (begin >= end) {
      return std::nullopt;
    }
    start.push_back(begin);
    dims.push_back(end - begin);
  }
  return Region{std::move(start), Shape(std::span<const std::int64_t>(dims))};
}

void copy_region(const Region& part,
                 const RegionMemory& source,
                 const RegionMemory& destination,
                 std::size_t element_bytes) {
  const auto dims = part.shape.dims();
  std::size_t inner = dims.size();
  std::size_t run_bytes = element_bytes;
  for (bool contiguous = true; contiguous && inner > 0;) {
    --inner;
    run_bytes *= static_cast<std::size_t>(dims[inner]);
    contiguous = dims[inner] == source.region.shape.dims()[inner] &&
                 dims[inner] == destination.region.shape.dims()[inner];
  }
  if (run_bytes == 0 || part.shape.num_elements() == 0) {
    return;
  }
  std::vector<std::int64_t> point = part.start;
  do {
    std::memcpy(destination.data + offset_of(point, destination.region) * element_bytes,
                source.data + offset_of(point, source.region) * element_bytes,
                run_bytes);
  } while (advance(point, part, inner));
}

}  // namespace slackline
