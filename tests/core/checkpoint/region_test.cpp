#include "core/checkpoint/region.h"

#include <numeric>
#include <vector>

#include "tests/support/catch.h"

namespace slackline {

namespace {

// Copies `part` between regions of one tensor, element by element numbered, and checks each.
void check_copy(const Region& source, const Region& destination, const Region& part) {
  const auto number = [](const std::vector<std::int64_t>& point) {
    return std::accumulate(point.begin(), point.end(), std::int64_t{0}, [](auto sum, auto index) {
      return sum * 100 + index;
    });
  };
  const auto for_each_point = [](const Region& region, const auto& body) {
    for (std::size_t i = 0; i < region.shape.num_elements(); ++i) {
      std::vector<std::int64_t> point = region.start;
      std::size_t rest = i;
      for (std::size_t d = point.size(); d-- > 0;) {
        const auto dim = static_cast<std::size_t>(region.shape.dims()[d]);
        point[d] += static_cast<std::int64_t>(rest % dim);
        rest /= dim;
      }
      body(i, point);
    }
  };
  std::vector<std::int32_t> from(source.shape.num_elements());
  std::vector<std::int32_t> to(destination.shape.num_elements(), -1);
  for_each_point(source, [&](std::size_t i, const auto& point) {
    from[i] = static_cast<std::int32_t>(number(point));
  });
  const std::vector<std::int64_t> zero(part.start.size(), 0);
  const auto point_in = [&](std::vector<std::int32_t>& memory, const Region& region) {
    return ArrayPoint{reinterpret_cast<std::byte*>(memory.data()),
                      region.shape,
                      moved(part.start, region.start, zero)};
  };
  copy_rectangle(
      point_in(from, source), point_in(to, destination), part.shape, sizeof(std::int32_t));
  for_each_point(destination, [&](std::size_t i, const auto& point) {
    const bool inside =
        intersection(part, {point, Shape(std::vector<std::int64_t>(point.size(), 1))}).has_value();
    REQUIRE(to[i] == (inside ? static_cast<std::int32_t>(number(point)) : -1));
  });
}

}  // namespace

TEST_CASE("parts are copied between any two rectangles and nothing beside them is touched") {
  const Region whole = whole_region({5, 4, 3});
  check_copy(whole, whole, whole);
  check_copy({{1, 0, 0}, {3, 4, 3}}, whole, {{1, 0, 0}, {3, 4, 3}});
  check_copy(whole, {{1, 1, 1}, {2, 3, 2}}, {{1, 1, 1}, {2, 3, 2}});
  check_copy({{0, 1, 0}, {5, 2, 3}}, {{2, 0, 1}, {3, 4, 2}}, {{2, 1, 1}, {3, 2, 2}});
  check_copy(whole_region({6}), {{2}, {3}}, {{2}, {3}});
  check_copy(whole_region({}), whole_region({}), whole_region({}));
}

TEST_CASE("a rectangle is copied out of memory that holds only a range of its array") {
  // Elements 7 to 17 of a (4, 6) array; rows 1 and 2, columns 3 to 4 of it.
  std::vector<std::int32_t> range(11);
  std::iota(range.begin(), range.end(), 7);
  std::vector<std::int32_t> copied(4, -1);
  copy_rectangle({reinterpret_cast<std::byte*>(range.data()), {4, 6}, {1, 3}, 7},
                 {reinterpret_cast<std::byte*>(copied.data()), {2, 2}, {0, 0}},
                 {2, 2},
                 sizeof(std::int32_t));
  REQUIRE(copied == std::vector<std::int32_t>{9, 10, 15, 16});
}

TEST_CASE("a place is held by memory that has all of its elements") {
  const Shape shape{4, 6};
  REQUIRE(is_held({shape, whole_region(shape)}, 24));
  REQUIRE_FALSE(is_held({shape, whole_region(shape)}, 23));
  REQUIRE(is_held({shape, {{1, 3}, {2, 2}}, 9}, 8));
  REQUIRE_FALSE(is_held({shape, {{1, 3}, {2, 2}}, 10}, 8));
  REQUIRE_FALSE(is_held({shape, {{1, 3}, {2, 2}}, 9}, 7));
  REQUIRE_FALSE(is_held({shape, {{1, 3}, {2, 4}}}, 24));
  REQUIRE(is_held({shape, {{4, 0}, {0, 6}}}, 0));
}

TEST_CASE("regions meet where both reach") {
  REQUIRE(intersection({{0, 0}, {2, 3}}, {{1, 2}, {4, 4}})->start ==
          std::vector<std::int64_t>{1, 2});
  REQUIRE(intersection({{0, 0}, {2, 3}}, {{1, 2}, {4, 4}})->shape == Shape{1, 1});
  REQUIRE_FALSE(intersection({{0, 0}, {2, 3}}, {{2, 0}, {2, 3}}).has_value());
  REQUIRE_FALSE(intersection({{0}, {0}}, {{0}, {4}}).has_value());
}

TEST_CASE("a region inside a tensor is recognized without overflow") {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  REQUIRE(is_inside({{1, 2}, {3, 4}}, {4, 6}));
  REQUIRE(is_inside({{4, 0}, {0, 6}}, {4, 6}));
  REQUIRE_FALSE(is_inside({{1, 2}, {4, 4}}, {4, 6}));
  REQUIRE_FALSE(is_inside({{huge, 0}, {4, 6}}, {4, 6}));
  REQUIRE_FALSE(is_inside({{1}, {3}}, {4, 6}));
  REQUIRE_FALSE(is_inside({{-1, 0}, {1, 1}}, {4, 6}));
}

}  // namespace slackline
