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
  copy_region(part,
              {reinterpret_cast<std::byte*>(from.data()), source},
              {reinterpret_cast<std::byte*>(to.data()), destination},
              sizeof(std::int32_t));
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
