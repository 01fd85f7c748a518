#include "core/tensor/tensor.h"

#include <array>

namespace slackline {

Tensor Tensor::reshaped(Shape shape) const {
  SL_CHECK_EQ(shape.num_elements(), shape_.num_elements());
  return {data_, dtype_, shape, device_};
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  SL_CHECK(
      0 <= begin && begin <= end && end <= dim(0),
      "rows " + std::to_string(begin) + " to " + std::to_string(end) + " of " + shape_.to_string());
  std::array<std::int64_t, Shape::kMaxRank> dims{};
  std::size_t row_elements = 1;
  dims[0] = end - begin;
  for (int i = 1; i < shape_.rank(); ++i) {
    dims[static_cast<std::size_t>(i)] = shape_[i];
    row_elements = checked_multiply(row_elements, static_cast<std::size_t>(shape_[i]));
  }
  auto* first = static_cast<std::byte*>(data_) +
                static_cast<std::size_t>(begin) * row_elements * size_of(dtype_);
  const Shape shape(
      std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(shape_.rank())));
  return {first, dtype_, shape, device_};
}

}  // namespace slackline
