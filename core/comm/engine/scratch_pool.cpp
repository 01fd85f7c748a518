#include "core/comm/engine/scratch_pool.h"

#include <utility>

namespace slackline {

std::size_t ScratchPool::block_bytes(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  return (bytes + kPage - 1) / kPage * kPage;
}

ScratchPool::Lease::Lease(std::shared_ptr<ScratchPool> pool, Buffer block)
    : pool_(std::move(pool)), block_(std::move(block)) {}

ScratchPool::Lease& ScratchPool::Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    give_back();
    pool_ = std::move(other.pool_);
    block_ = std::move(other.block_);
  }
  return *this;
}

ScratchPool::Lease::~Lease() {
  give_back();
}

void ScratchPool::Lease::give_back() {
  if (pool_ != nullptr) {
    std::exchange(pool_, nullptr)->put(std::move(block_));
  }
}

std::vector<Buffer>::iterator ScratchPool::best_for(std::size_t needed) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (serves(it->bytes(), needed) && (best == free_.end() || it->bytes() < best->bytes())) {
      best = it;
    }
  }
  return best;
}

bool ScratchPool::has(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return best_for(block_bytes(bytes)) != free_.end();
}

ScratchPool::Lease ScratchPool::take(std::size_t bytes) {
  const std::size_t needed = block_bytes(bytes);
  {
    const std::lock_guard lock(mutex_);
    const auto best = best_for(needed);
    if (best != free_.end()) {
      Buffer block = std::move(*best);
      free_.erase(best);
      return {shared_from_this(), std::move(block)};
    }
  }
  return {shared_from_this(), Buffer("communication scratch", needed, backing_)};
}

void ScratchPool::put(Buffer block) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(block));
}

}  // namespace slackline
