#include "core/cuda/memory_pool.h"

#include <algorithm>
#include <functional>

#include "core/cuda/check_cuda.h"

namespace slackline::cuda {

namespace {

std::size_t rounded(std::size_t bytes) {
  constexpr std::size_t kUnit = MemoryPool::kAlignment;
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

// Makes [offset, offset + bytes) one gap with its neighbours.
void add_gap(std::map<std::size_t, std::size_t>& gaps, std::size_t offset, std::size_t bytes) {
  auto after = gaps.lower_bound(offset);
  if (after != gaps.end() && after->first == offset + bytes) {
    bytes += after->second;
    after = gaps.erase(after);
  }
  if (after != gaps.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  gaps.emplace_hint(after, offset, bytes);
}

}  // namespace

MemoryPool::~MemoryPool() {
  for (const std::unique_ptr<Block>& block : blocks_) {
    cudaFree(block->memory);  // fails only where the device has failed, which another call says
  }
}

MemoryPool::Block* MemoryPool::add_block(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  SL_CUDA_CHECK(error);
  blocks_.push_back(std::make_unique<Block>(
      Block{.memory = static_cast<std::byte*>(memory), .bytes = bytes, .gaps = {{0, bytes}}}));
  return blocks_.back().get();
}

bool MemoryPool::reserve(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Block* const block = add_block(rounded(bytes));
  if (block == nullptr) {
    return false;
  }
  block->is_reserved = true;
  use_.reserved += block->bytes;
  return true;
}

std::byte* MemoryPool::take_from(Block& block, std::size_t offset, std::size_t bytes) {
  const auto gap = block.gaps.find(offset);
  const std::size_t left = gap->second - bytes;
  block.gaps.erase(gap);
  if (left > 0) {
    block.gaps.emplace(offset + bytes, left);
  }
  block.pieces.emplace(offset, bytes);
  use_.pieces += bytes;
  use_.most = std::max(use_.most, use_.pieces);
  return block.memory + offset;
}

std::byte* MemoryPool::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes = rounded(std::max<std::size_t>(bytes, 1));
  Block* best = nullptr;
  std::size_t offset = 0;
  std::size_t smallest = 0;
  for (const std::unique_ptr<Block>& block : blocks_) {
    for (const auto& [begin, size] : block->gaps) {
      if (size >= bytes && (best == nullptr || size < smallest)) {
        best = block.get();
        offset = begin;
        smallest = size;
      }
    }
  }
  if (best != nullptr) {
    return take_from(*best, offset, bytes);
  }
  Block* const apart = add_block(bytes);
  if (apart == nullptr) {
    return nullptr;
  }
  apart_ += bytes;
  use_.beyond = std::max(use_.beyond, apart_);
  return take_from(*apart, 0, bytes);
}

void MemoryPool::give_back(std::byte* piece) {
  cudaDeviceSynchronize();
  const std::lock_guard lock(mutex_);
  const std::less<const std::byte*> less;
  const auto found = std::ranges::find_if(blocks_, [&](const std::unique_ptr<Block>& block) {
    return !less(piece, block->memory) && less(piece, block->memory + block->bytes);
  });
  Block& block = **found;
  const auto given = block.pieces.find(static_cast<std::size_t>(piece - block.memory));
  const auto [offset, bytes] = *given;
  block.pieces.erase(given);
  add_gap(block.gaps, offset, bytes);
  use_.pieces -= bytes;
  if (!block.is_reserved) {
    cudaFree(block.memory);
    apart_ -= block.bytes;
    blocks_.erase(found);
  }
}

MemoryPool::Use MemoryPool::use() const {
  const std::lock_guard lock(mutex_);
  Use use = use_;
  use.left = use.reserved + apart_ - use.pieces;
  return use;
}

}  // namespace slackline::cuda
