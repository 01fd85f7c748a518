#include "core/buffer.h"

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace slackline {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20U;  // bytes, x86-64
constexpr std::size_t kCacheLine = 64;

std::byte* map_untouched(std::size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

}  // namespace

Buffer::Buffer(std::string name, std::size_t bytes, Backing backing)
    : name_(std::move(name)), bytes_(bytes) {
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kCacheLine;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (backing == Backing::untouched && bytes > 0) {
    memory_ = {map_untouched(bytes), ReleaseMemory{bytes}};
  } else {
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  }
  if (memory_ == nullptr && bytes > 0) {
    throw DeviceError("out of host memory for buffer '" + name_ + "': " + std::to_string(bytes) +
                      " bytes");
  }
  if (backing == Backing::memory && bytes >= kHugePage) {
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

void ReleaseMemory::operator()(std::byte* memory) const {
  if (mapped > 0) {
    munmap(memory, mapped);
  } else {
    std::free(memory);
  }
}

Buffer make_buffer(std::string name, DType dtype, const Shape& shape) {
  return {std::move(name), checked_multiply(shape.num_elements(), size_of(dtype))};
}

}  // namespace slackline
