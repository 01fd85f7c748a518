#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace slackline::cuda {

// Memory of one device that the buffers of a rank are pieces of. What its plan says is taken from
// the device at once; a piece that finds no room there is taken from the device by itself, and goes
// back there. Safe from any thread whose device it is.
//
// Invariants: 1. pieces never overlap; 2. each begins at a multiple of 256 bytes, as cudaMalloc's
// do; 3. a gap ends at a piece or at the end of the block.
class MemoryPool {
 public:
  static constexpr std::size_t kAlignment = 256;

  struct Use {
    std::size_t reserved = 0;
    std::size_t pieces = 0;  // bytes that are given out now
    std::size_t most = 0;    // that ever were
    std::size_t beyond = 0;  // the most that had to be taken apart from what is reserved
    std::size_t left = 0;    // of what is reserved
  };

  MemoryPool() = default;
  // REQUIRES: pieces that were taken apart were given back.
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Takes this much from the device in one block. False, and nothing is taken, where the device has
  // not that much left. REQUIRES: nothing is reserved yet.
  [[nodiscard]] bool reserve(std::size_t bytes);

  // From the smallest gap that is large enough. Null where the device has not that much left
  // either. Throws DeviceError for other failures.
  [[nodiscard]] std::byte* take(std::size_t bytes);

  // Waits until the device has done what is queued, which may use the piece. REQUIRES: it is one.
  void give_back(std::byte* piece);

  [[nodiscard]] Use use() const;

 private:
  using Stretches = std::map<std::byte*, std::size_t>;  // address, bytes

  mutable std::mutex mutex_;
  std::byte* block_ = nullptr;  // use_.reserved bytes
  Stretches gaps_;              // of the block
  Stretches pieces_;            // in the block and apart
  Use use_;
  std::size_t apart_ = 0;  // bytes of pieces that are not in the block
};

}  // namespace slackline::cuda
