#pragma once

#include <cstddef>
#include <string>

#include "core/tensor/buffer.h"

namespace slackline {

// One block of memory handed out front to back and taken back in reverse order. Two uses:
// activations of a micro-batch in flight, and a stream's scratch (Stream::workspace).
// Not thread-safe: allocate before a parallel loop, use inside it.
//
// Invariants: 1. live allocations never overlap; 2. every allocation is 64-byte aligned;
// 3. high_water() is the largest number of bytes ever live, alignment included.
class Arena {
 public:
  static constexpr std::size_t kAlignment = 64;

  // Memory is taken from the system page by page as it is first touched.
  Arena(std::string name, std::size_t capacity_bytes, Backing backing = Backing::memory);

  // An arena without memory: hands out tensors of the right shapes that must not be read, and
  // counts. The memory plan runs the real allocation code on it.
  [[nodiscard]] static Arena measuring();

  // Contents are undefined. Throws Error naming the arena when it does not fit: capacities come
  // from the memory plan, so that is our bug.
  [[nodiscard]] Tensor allocate(DType dtype, const Shape& shape);

  // A position to return to: releases what was allocated since.
  [[nodiscard]] std::size_t mark() const { return used_; }

  void release(std::size_t mark);

  [[nodiscard]] std::size_t capacity() const { return capacity_; }

  [[nodiscard]] std::size_t high_water() const { return high_water_; }

  // Bytes that one allocation of this size takes, alignment included (for memory plans).
  [[nodiscard]] static std::size_t aligned_bytes(DType dtype, const Shape& shape);

 private:
  Arena() = default;

  Buffer buffer_;
  std::size_t capacity_ = 0;
  std::size_t used_ = 0;
  std::size_t high_water_ = 0;
};

// Gives back at the end of the block whatever was allocated in it.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}

  ~ArenaScope() { arena_.release(mark_); }

  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

  [[nodiscard]] Tensor allocate(DType dtype, const Shape& shape) {
    return arena_.allocate(dtype, shape);
  }

 private:
  Arena& arena_;
  std::size_t mark_;
};

}  // namespace slackline
