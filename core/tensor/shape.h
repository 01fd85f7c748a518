#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>

namespace slackline {

class JsonReader;

// Multiplies counts; throws Error when the product does not fit size_t.
[[nodiscard]] std::size_t checked_multiply(std::size_t a, std::size_t b);

// Dimensions of a row-major tensor, outermost first. A value; at most kMaxRank dimensions.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);

  [[nodiscard]] int rank() const { return rank_; }

  // REQUIRES: -rank <= dim < rank; negative counts from the end.
  [[nodiscard]] std::int64_t operator[](int dim) const;
  [[nodiscard]] std::size_t num_elements() const;  // 1 for rank 0

  [[nodiscard]] std::span<const std::int64_t> dims() const {
    return {dims_.data(), static_cast<std::size_t>(rank_)};
  }

  [[nodiscard]] std::string to_string() const;  // "(2, 3)"

  bool operator==(const Shape& other) const = default;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);

// Reads the key "shape": at most kMaxRank dimensions, and 2^61 elements, so that the bytes of any
// type can be counted.
[[nodiscard]] Shape read_shape(JsonReader& reader);

}  // namespace slackline
