#include <cuda_runtime.h>

#include "core/cuda/check_cuda.h"
#include "tests/support/test_device.h"

namespace slackline::testing {

Device test_device() {
  return Device::cuda;
}

std::byte* allocate_for_test(std::size_t bytes) {
  void* memory = nullptr;
  SL_CUDA_CHECK(cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal));
  return static_cast<std::byte*>(memory);
}

void release_of_test(std::byte* memory) {
  cudaFree(memory);
}

void wait_for_test_device() {
  SL_CUDA_CHECK(cudaDeviceSynchronize());
}

}  // namespace slackline::testing
