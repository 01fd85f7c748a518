#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/tensor/tensor.h"

namespace slackline {

namespace cuda {
class MemoryPool;
}

// What a buffer asks for. `untouched`: addresses only, for a rehearsal, which has tensors of any
// size and touches few of their pages; whoever touches more than there is gets killed. `cuda`:
// memory of the current CUDA device, which the host cannot read. `pinned`: of the host, which that
// device copies from and to.
enum class Backing { memory, untouched, cuda, pinned };

// What ops of a device work on.
[[nodiscard]] constexpr Backing backing_of(Device device) {
  switch (device) {
    case Device::cpu:
      return Backing::memory;
    case Device::cuda:
      return Backing::cuda;
    case Device::rehearsal:
      break;
  }
  return Backing::untouched;
}

// What a buffer does with its memory at its end.
struct ReleaseMemory {
  std::string name;  // in the table of what is held
  Backing backing = Backing::memory;
  std::size_t bytes = 0;
  std::shared_ptr<cuda::MemoryPool> pool{};  // of a device; lives as long as a piece of it

  void operator()(std::byte* memory) const;
};

// Memory that lives as long as the run: parameters, gradients, optimizer state. Owns its bytes,
// has a name for error messages and memory tables, and hands out views. Move-only; contents are
// undefined until written. 2 MiB alignment lets the kernel back large buffers with huge pages.
class Buffer {
 public:
  Buffer() = default;
  // Throws OutOfMemoryError when the memory is not there.
  Buffer(std::string name, std::size_t bytes, Backing backing = Backing::memory);

  [[nodiscard]] const std::string& name() const { return memory_.get_deleter().name; }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  [[nodiscard]] Device device() const {
    switch (memory_.get_deleter().backing) {
      case Backing::cuda:
        return Device::cuda;
      case Backing::untouched:
        return Device::rehearsal;
      default:
        return Device::cpu;
    }
  }

  [[nodiscard]] std::byte* data() const { return memory_.get(); }

  // View of `shape` elements starting `offset` bytes in. REQUIRES: it fits.
  [[nodiscard]] Tensor view(DType dtype, Shape shape, std::size_t offset = 0) const;

  // All of it as one row. REQUIRES: it holds whole elements.
  [[nodiscard]] Tensor row(DType dtype) const {
    return view(dtype, {static_cast<std::int64_t>(bytes_ / size_of(dtype))});
  }

  // Done when the call returns. Untouched memory stays so: nobody reads it.
  void fill_zero();

 private:
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte, ReleaseMemory> memory_;
};

// Makes a buffer that holds exactly one tensor.
[[nodiscard]] Buffer make_buffer(std::string name,
                                 DType dtype,
                                 const Shape& shape,
                                 Backing backing = Backing::memory);

}  // namespace slackline
