#include "core/tensor/buffer.h"

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include "core/cuda/cuda_memory.h"
#include "core/error.h"
#include "core/tensor/memory_table.h"

namespace slackline {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20U;  // bytes, x86-64
constexpr std::size_t kCacheLine = 64;

std::byte* allocate_on_heap(std::size_t bytes) {
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kCacheLine;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded);
  if (memory != nullptr && bytes >= kHugePage) {
    // A hint: failure costs speed only. The rest of the last page, which would hold memory that
    // nobody asked for, is left in small ones.
    madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
  return static_cast<std::byte*>(memory);
}

std::byte* map_untouched(std::size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// Notes the pool that gives it, if one does.
std::byte* allocate(ReleaseMemory& memory) {
  switch (memory.backing) {
    case Backing::untouched:
      return map_untouched(memory.bytes);
    case Backing::cuda:
      memory.pool = cuda::pool_of_thread();
      return memory.pool->take(memory.bytes);
    case Backing::pinned:
      return cuda::allocate_pinned(memory.bytes);
    case Backing::memory:
      break;
  }
  return allocate_on_heap(memory.bytes);
}

MemorySpace space_of(Backing backing) {
  return backing == Backing::cuda ? MemorySpace::device : MemorySpace::host;
}

[[noreturn]] void refuse(const std::string& name, std::size_t bytes, MemorySpace space) {
  const bool on_device = space == MemorySpace::device;
  const std::size_t held = held_bytes(space);
  throw OutOfMemoryError(Lines{std::string("out of ") + (on_device ? "device" : "host") +
                               " memory for buffer '" + name + "' of " + size_text(bytes) + " (" +
                               std::to_string(bytes) + " bytes). Held:" + memory_table(space)},
                         held + (on_device ? cuda::free_bytes() : 0));
}

}  // namespace

Buffer::Buffer(std::string name, std::size_t bytes, Backing backing)
    : bytes_(bytes), memory_(nullptr, ReleaseMemory{std::move(name), backing, bytes}) {
  if (bytes == 0) {
    return;
  }
  memory_.reset(allocate(memory_.get_deleter()));
  if (memory_ == nullptr) {
    refuse(this->name(), bytes, space_of(backing));
  }
  note_taken(space_of(backing), this->name(), bytes);
}

Tensor Buffer::view(DType dtype, Shape shape, std::size_t offset) const {
  const std::size_t bytes = checked_multiply(shape.num_elements(), size_of(dtype));
  SL_CHECK(offset <= bytes_ && bytes <= bytes_ - offset,
           shape.to_string() + " at byte " + std::to_string(offset) + " of buffer " + name());
  return {memory_.get() + offset, dtype, shape, device()};
}

void Buffer::fill_zero() {
  if (bytes_ == 0 || device() == Device::rehearsal) {
    return;
  }
  if (device() == Device::cuda) {
    cuda::fill_zero(memory_.get(), bytes_);
  } else {
    std::memset(memory_.get(), 0, bytes_);
  }
}

void ReleaseMemory::operator()(std::byte* memory) const {
  note_released(space_of(backing), name, bytes);
  switch (backing) {
    case Backing::memory:
      return std::free(memory);
    case Backing::untouched:
      munmap(memory, bytes);
      return;
    case Backing::cuda:
      return pool->give_back(memory);
    case Backing::pinned:
      return cuda::release_pinned(memory);
  }
}

Buffer make_buffer(std::string name, DType dtype, const Shape& shape, Backing backing) {
  return {std::move(name), checked_multiply(shape.num_elements(), size_of(dtype)), backing};
}

}  // namespace slackline
