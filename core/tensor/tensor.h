#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/check.h"
#include "core/tensor/device.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"

namespace slackline {

// A typed view of contiguous row-major memory that somebody else owns (a Buffer, an Arena or a
// mapped file). Copying a Tensor copies the view. Never keep one longer than its owner, or than
// the arena mark below it.
class Tensor {
 public:
  Tensor() = default;

  Tensor(void* data, DType dtype, Shape shape, Device device = Device::cpu)
      : data_(data), dtype_(dtype), device_(device), shape_(shape) {}

  // Views typed host memory of `count` elements as one row.
  template <typename T>
  explicit Tensor(std::span<T> values)
      : Tensor(values.data(), kDTypeOf<T>, Shape{static_cast<std::int64_t>(values.size())}) {}

  [[nodiscard]] bool empty() const { return data_ == nullptr; }

  [[nodiscard]] DType dtype() const { return dtype_; }

  [[nodiscard]] Device device() const { return device_; }

  [[nodiscard]] const Shape& shape() const { return shape_; }

  [[nodiscard]] std::int64_t dim(int index) const { return shape_[index]; }

  [[nodiscard]] std::size_t num_elements() const { return shape_.num_elements(); }

  [[nodiscard]] std::size_t bytes() const { return num_elements() * size_of(dtype_); }

  [[nodiscard]] void* raw() const { return data_; }

  // The elements. REQUIRES: T is the tensor's element type.
  template <typename T>
  [[nodiscard]] T* data() const {
    SL_CHECK(kDTypeOf<T> == dtype_, "tensor holds " + std::string(name_of(dtype_)));
    return static_cast<T*>(data_);
  }

  template <typename T>
  [[nodiscard]] std::span<T> span() const {
    return {data<T>(), num_elements()};
  }

  // The same elements with other dimensions. REQUIRES: equal element counts.
  [[nodiscard]] Tensor reshaped(Shape shape) const;

  // Rows [begin, end) of the outermost dimension.
  [[nodiscard]] Tensor rows(std::int64_t begin, std::int64_t end) const;

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::f32;
  Device device_ = Device::cpu;
  Shape shape_;
};

}  // namespace slackline
