#include "core/cuda/memory_pool.h"

#include <algorithm>
#include <functional>

#include "core/check.h"
#include "core/cuda/check_cuda.h"

namespace slackline::cuda {

namespace {

std::size_t rounded(std::size_t bytes) {
  constexpr std::size_t kUnit = MemoryPool::kAlignment;
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

// Null where the device has not that much left.
std::byte* take_from_device(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  SL_CUDA_CHECK(error);
  return static_cast<std::byte*>(memory);
}

// Makes [begin, begin + bytes) one gap with its neighbours.
void add_gap(std::map<std::byte*, std::size_t>& gaps, std::byte* begin, std::size_t bytes) {
  auto after = gaps.lower_bound(begin);
  if (after != gaps.end() && after->first == begin + bytes) {
    bytes += after->second;
    after = gaps.erase(after);
  }
  if (after != gaps.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      before->second += bytes;
      return;
    }
  }
  gaps.emplace_hint(after, begin, bytes);
}

}  // namespace

MemoryPool::~MemoryPool() {
  cudaFree(block_);  // fails only where the device has failed, which another call says
}

bool MemoryPool::reserve(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  SL_CHECK(block_ == nullptr, "a pool has one block");
  bytes = rounded(bytes);
  block_ = take_from_device(bytes);
  if (block_ == nullptr) {
    return false;
  }
  gaps_.emplace(block_, bytes);
  use_.reserved = bytes;
  return true;
}

std::byte* MemoryPool::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes = rounded(std::max<std::size_t>(bytes, 1));
  auto best = gaps_.end();
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second >= bytes && (best == gaps_.end() || gap->second < best->second)) {
      best = gap;
    }
  }
  std::byte* piece = nullptr;
  if (best != gaps_.end()) {
    const auto [begin, size] = *best;
    piece = begin;
    gaps_.erase(best);
    if (size > bytes) {
      gaps_.emplace(begin + bytes, size - bytes);
    }
  } else {
    piece = take_from_device(bytes);
    if (piece == nullptr) {
      return nullptr;
    }
    apart_ += bytes;
    use_.beyond = std::max(use_.beyond, apart_);
  }
  pieces_.emplace(piece, bytes);
  use_.pieces += bytes;
  use_.most = std::max(use_.most, use_.pieces);
  return piece;
}

void MemoryPool::give_back(std::byte* piece) {
  cudaDeviceSynchronize();
  const std::lock_guard lock(mutex_);
  const auto given = pieces_.find(piece);
  const std::size_t bytes = given->second;
  pieces_.erase(given);
  use_.pieces -= bytes;
  const std::less<const std::byte*> less;
  if (!less(piece, block_) && less(piece, block_ + use_.reserved)) {
    add_gap(gaps_, piece, bytes);
  } else {
    cudaFree(piece);
    apart_ -= bytes;
  }
}

MemoryPool::Use MemoryPool::use() const {
  const std::lock_guard lock(mutex_);
  Use use = use_;
  use.left = use.reserved + apart_ - use.pieces;
  return use;
}

}  // namespace slackline::cuda
