#include "core/cuda/cuda_memory.h"

#include "core/cuda/check_cuda.h"
#include "core/cuda/cuda_device.h"

namespace slackline::cuda {

std::shared_ptr<MemoryPool> pool_of_thread() {
  // Never destroyed: buffers of static objects may end later.
  static const auto* const shared = new std::shared_ptr<MemoryPool>(std::make_shared<MemoryPool>());
  const std::shared_ptr<MemoryPool>& own = device_of_thread().pool;
  return own == nullptr ? *shared : own;
}

std::size_t free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  SL_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free + pool_of_thread()->use().left;
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
