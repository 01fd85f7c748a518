#pragma once

#include <cstddef>
#include <utility>

#include <cuda_runtime.h>

#include "core/cuda/check_cuda.h"
#include "core/tensor/stream.h"

namespace slackline::cuda {

// How many blocks of how many threads, and bytes of dynamic shared memory for each block.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
};

// The one way to start a kernel: arguments are converted to the kernel's parameters. An empty grid
// is no work, so nothing is started.
template <typename... Parameters, typename... Arguments>
void launch(StreamView stream,
            const LaunchShape& shape,
            void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) {
    return;
  }
  constexpr std::size_t kWithoutAsking = 48 * 1024;  // more shared memory has to be asked for
  if (shape.shared_bytes > kWithoutAsking) {
    SL_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes)));
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream.cuda().handle();
  SL_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

// The dynamic shared memory that a block may ask for on this thread's device.
[[nodiscard]] inline std::size_t shared_bytes_of_block() {
  int device = 0;
  int bytes = 0;
  SL_CUDA_CHECK(cudaGetDevice(&device));
  SL_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return static_cast<std::size_t>(bytes);
}

// How many blocks of `each` cover `count`.
[[nodiscard]] constexpr unsigned blocks_for(std::size_t count, std::size_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

}  // namespace slackline::cuda
