#include "core/cuda/cuda_memory.h"

#include <mutex>
#include <unordered_map>

#include "core/cuda/check_cuda.h"
#include "core/cuda/cuda_device.h"

namespace slackline::cuda {

namespace {

// Which pool a piece is of. Never destroyed: buffers of static objects may end later.
struct Owners {
  std::mutex mutex;
  std::unordered_map<std::byte*, std::shared_ptr<MemoryPool>> pools;
};

Owners& owners() {
  static auto* const only = new Owners;  // NOLINT(cppcoreguidelines-owning-memory)
  return *only;
}

// Threads that no rank owns, those of tests, share one.
std::shared_ptr<MemoryPool> pool_of_thread() {
  static const auto* const shared = new std::shared_ptr<MemoryPool>(std::make_shared<MemoryPool>());
  const std::shared_ptr<MemoryPool>& own = device_of_thread().pool;
  return own == nullptr ? *shared : own;
}

}  // namespace

bool reserve(std::size_t bytes) {
  return pool_of_thread()->reserve(bytes);
}

MemoryPool::Use use_of_pool() {
  return pool_of_thread()->use();
}

std::byte* allocate(std::size_t bytes) {
  std::shared_ptr<MemoryPool> pool = pool_of_thread();
  std::byte* const piece = pool->take(bytes);
  if (piece != nullptr) {
    const std::lock_guard lock(owners().mutex);
    owners().pools[piece] = std::move(pool);
  }
  return piece;
}

void release(std::byte* memory) {
  std::shared_ptr<MemoryPool> pool;
  {
    const std::lock_guard lock(owners().mutex);
    const auto found = owners().pools.find(memory);
    if (found == owners().pools.end()) {
      return;
    }
    pool = std::move(found->second);
    owners().pools.erase(found);
  }
  pool->give_back(memory);
}

std::size_t free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  SL_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free + use_of_pool().left;
}

std::byte* allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocDefault);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  SL_CUDA_CHECK(error);
  return static_cast<std::byte*>(memory);
}

void release_pinned(std::byte* memory) {
  cudaFreeHost(memory);
}

void fill_zero(std::byte* memory, std::size_t bytes) {
  SL_CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, nullptr));
  SL_CUDA_CHECK(cudaStreamSynchronize(nullptr));
}

void copy_now(void* to, const void* from, std::size_t bytes) {
  SL_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, nullptr));
  SL_CUDA_CHECK(cudaStreamSynchronize(nullptr));
}

void copy(CUstream_st* stream, void* to, const void* from, std::size_t bytes) {
  SL_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

}  // namespace slackline::cuda
