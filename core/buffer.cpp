#include "core/buffer.h"

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace slackline {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20U;  // bytes, x86-64
constexpr std::size_t kCacheLine = 64;

}  // namespace

Buffer::Buffer(std::string name, std::size_t bytes, Device device)
    : name_(std::move(name)), bytes_(bytes), device_(device) {
  SL_CHECK(device == Device::cpu, "buffers live in host memory until the CUDA backend is there");
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kCacheLine;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  if (memory_ == nullptr && bytes > 0) {
    throw DeviceError("out of host memory for buffer '" + name_ + "': " + std::to_string(bytes) +
                      " bytes");
  }
  if (bytes >= kHugePage) {
    madvise(memory_.get(), rounded, MADV_HUGEPAGE);  // a hint: failure costs speed only
  }
}

Tensor Buffer::view(DType dtype, Shape shape, std::size_t offset) const {
  const std::size_t bytes = checked_multiply(shape.num_elements(), size_of(dtype));
  SL_CHECK(offset <= bytes_ && bytes <= bytes_ - offset,
           shape.to_string() + " at byte " + std::to_string(offset) + " of buffer " + name_);
  return {memory_.get() + offset, dtype, shape, device_};
}

void Buffer::fill_zero() {
  if (bytes_ > 0) {
    std::memset(memory_.get(), 0, bytes_);
  }
}

void Buffer::Release::operator()(std::byte* memory) const {
  std::free(memory);
}

Buffer make_buffer(std::string name, DType dtype, const Shape& shape) {
  return {std::move(name), checked_multiply(shape.num_elements(), size_of(dtype))};
}

}  // namespace slackline
