#include "core/tensor/shape.h"

#include <ostream>

#include <fmt/format.h>

#include "core/check.h"
#include "core/joined_text.h"
#include "core/json_reader.h"

namespace slackline {

std::size_t checked_multiply(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  SL_CHECK(!__builtin_mul_overflow(a, b, &product),
           std::to_string(a) + " times " + std::to_string(b) + " overflows");
  return product;
}

Shape::Shape(std::initializer_list<std::int64_t> dims)
    : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  SL_CHECK(dims.size() <= kMaxRank, "too many dimensions: " + std::to_string(dims.size()));
  for (std::size_t i = 0; i < dims.size(); ++i) {
    SL_CHECK(dims[i] >= 0, "negative dimension " + std::to_string(dims[i]));
    dims_[i] = dims[i];
  }
}

std::int64_t Shape::operator[](int dim) const {
  const int index = dim < 0 ? dim + rank_ : dim;
  SL_CHECK(index >= 0 && index < rank_, to_string() + " has no dimension " + std::to_string(dim));
  return dims_[static_cast<std::size_t>(index)];
}

std::size_t Shape::num_elements() const {
  std::size_t count = 1;
  for (const std::int64_t dim : dims()) {
    count = checked_multiply(count, static_cast<std::size_t>(dim));
  }
  return count;
}

std::string Shape::to_string() const {
  return fmt::format("({})", joined(dims(), ", "));
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.to_string();
}

Shape read_shape(JsonReader& reader) {
  const auto dims = reader.integers("shape", {.min = 0});
  std::size_t elements = 1;
  bool overflow = dims.size() > Shape::kMaxRank;
  for (const std::int64_t dim : dims) {
    overflow |= __builtin_mul_overflow(elements, static_cast<std::size_t>(dim), &elements);
  }
  std::size_t bytes = 0;
  overflow |= __builtin_mul_overflow(elements, sizeof(double), &bytes);  // the widest element
  if (overflow) {
    reader.fail("shape",
                fmt::format("must have at most {} dimensions and 2^61 elements", Shape::kMaxRank));
  }
  return Shape(std::span<const std::int64_t>(dims));
}

}  // namespace slackline
