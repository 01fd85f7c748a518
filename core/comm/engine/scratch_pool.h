#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "core/tensor/buffer.h"

namespace slackline {

// Memory that operations receive into, used again and again. Blocks go back when their lease ends.
// Safe from any thread.
class ScratchPool : public std::enable_shared_from_this<ScratchPool> {
 public:
  // Holds one block; empty when default-constructed. Move-only. Keeps the pool alive, since a
  // lease may end on another thread than the pool's owner: hence the shared pointer.
  class Lease {
   public:
    Lease() = default;
    Lease(std::shared_ptr<ScratchPool> pool, Buffer block);
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&& other) noexcept;
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease();

    [[nodiscard]] std::byte* data() const { return block_.data(); }

   private:
    void give_back();

    std::shared_ptr<ScratchPool> pool_;
    Buffer block_;
  };

  explicit ScratchPool(Backing backing = Backing::memory) : backing_(backing) {}

  [[nodiscard]] Lease take(std::size_t bytes);

  // Whether take() would allocate nothing.
  [[nodiscard]] bool has(std::size_t bytes);

  // Returns the bytes of a new block: whole pages, so that near sizes share them.
  static std::size_t block_bytes(std::size_t bytes);

  // Whether a block of so many bytes, which is free, may serve `needed` ones.
  static bool serves(std::size_t block, std::size_t needed) {
    return block >= needed && block <= 2 * needed;
  }

 private:
  // Looks in free_, under the lock.
  [[nodiscard]] std::vector<Buffer>::iterator best_for(std::size_t needed);
  void put(Buffer block);

  Backing backing_;
  std::mutex mutex_;
  std::vector<Buffer> free_;
};

}  // namespace slackline
