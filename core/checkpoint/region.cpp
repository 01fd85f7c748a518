#include "core/checkpoint/region.h"

#include <algorithm>
#include <cstring>

namespace slackline {

namespace {

std::size_t flat_index(const std::vector<std::int64_t>& point, const Shape& shape) {
  std::size_t index = 0;
  for (std::size_t i = 0; i < point.size(); ++i) {
    index = index * static_cast<std::size_t>(shape.dims()[i]) + static_cast<std::size_t>(point[i]);
  }
  return index;
}

// Moves `offset` to the first element of the next run; false behind the last. Dimensions from
// `inner` on are inside a run.
bool advance(std::vector<std::int64_t>& offset, const Shape& extent, std::size_t inner) {
  for (std::size_t i = inner; i-- > 0;) {
    if (++offset[i] < extent.dims()[i]) {
      return true;
    }
    offset[i] = 0;
  }
  return false;
}

std::byte* address(const ArrayPoint& array,
                   const std::vector<std::int64_t>& offset,
                   std::size_t element_bytes) {
  std::size_t index = 0;
  for (std::size_t i = 0; i < offset.size(); ++i) {
    index = index * static_cast<std::size_t>(array.shape.dims()[i]) +
            static_cast<std::size_t>(array.point[i] + offset[i]);
  }
  return array.data + (index - array.first) * element_bytes;
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

bool is_held(const LocalPlace& place, std::size_t num_elements) {
  if (!is_inside(place.region, place.shape)) {
    return false;
  }
  if (place.region.shape.num_elements() == 0) {
    return true;
  }
  std::vector<std::int64_t> last = place.region.start;
  for (std::size_t i = 0; i < last.size(); ++i) {
    last[i] += place.region.shape.dims()[i] - 1;
  }
  return flat_index(place.region.start, place.shape) >= place.first &&
         flat_index(last, place.shape) - place.first < num_elements;
}

std::vector<std::int64_t> moved(const std::vector<std::int64_t>& a,
                                const std::vector<std::int64_t>& b,
                                const std::vector<std::int64_t>& c) {
  std::vector<std::int64_t> point = a;
  for (std::size_t i = 0; i < point.size(); ++i) {
    point[i] += c[i] - b[i];
  }
  return point;
}

void copy_rectangle(const ArrayPoint& source,
                    const ArrayPoint& destination,
                    const Shape& extent,
                    std::size_t element_bytes) {
  const auto dims = extent.dims();
  std::size_t inner = dims.size();
  std::size_t run_bytes = element_bytes;
  for (bool contiguous = true; contiguous && inner > 0;) {
    --inner;
    run_bytes *= static_cast<std::size_t>(dims[inner]);
    contiguous =
        dims[inner] == source.shape.dims()[inner] && dims[inner] == destination.shape.dims()[inner];
  }
  if (extent.num_elements() == 0) {
    return;
  }
  std::vector<std::int64_t> offset(dims.size(), 0);
  do {
    std::memcpy(address(destination, offset, element_bytes),
                address(source, offset, element_bytes),
                run_bytes);
  } while (advance(offset, extent, inner));
}

}  // namespace slackline
