#include "core/tensor/arena.h"

#include <algorithm>
#include <limits>

namespace slackline {

Arena::Arena(std::string name, std::size_t capacity_bytes, Backing backing)
    : buffer_(std::move(name), capacity_bytes, backing), capacity_(capacity_bytes) {}

Arena Arena::measuring() {
  Arena arena;
  arena.capacity_ = std::numeric_limits<std::size_t>::max();
  return arena;
}

std::size_t Arena::aligned_bytes(DType dtype, const Shape& shape) {
  const std::size_t bytes = checked_multiply(shape.num_elements(), size_of(dtype));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Tensor Arena::allocate(DType dtype, const Shape& shape) {
  const std::size_t bytes = aligned_bytes(dtype, shape);
  SL_CHECK(bytes <= capacity() - used_,
           "arena '" + buffer_.name() + "' of " + std::to_string(capacity()) + " bytes has " +
               std::to_string(capacity() - used_) + " left, asked for " + std::to_string(bytes));
  const Tensor tensor =
      buffer_.data() == nullptr ? Tensor(nullptr, dtype, shape) : buffer_.view(dtype, shape, used_);
  used_ += bytes;
  high_water_ = std::max(high_water_, used_);
  return tensor;
}

void Arena::release(std::size_t mark) {
  SL_CHECK(mark <= used_, "arena '" + buffer_.name() + "' released out of order");
  used_ = mark;
}

}  // namespace slackline
