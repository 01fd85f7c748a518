#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

#include "tests/emulated_cuda/emulated_streams.h"

// The runtime's memory: of the device, pinned memory of the host, and copies.
namespace emulated_cuda {

namespace {

// 8 GiB, or what a test of running out of memory says.
std::size_t limit_of_tests() {
  const char* const bytes = std::getenv("SL_EMULATED_DEVICE_MEMORY");
  return bytes == nullptr ? std::size_t{8} << 30U : std::strtoull(bytes, nullptr, 10);
}

// Pieces of memory by their first bytes.
using Pieces = std::map<std::uintptr_t, std::size_t>;

// What cudaMalloc and cudaHostAlloc have given.
struct Memory {
  std::mutex mutex;
  Pieces device;
  Pieces pinned;
  std::size_t used = 0;  // of the device's
  std::size_t limit = limit_of_tests();
};

Memory& memory() {
  static Memory all;
  return all;
}

std::uintptr_t address(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

bool holds(const Pieces& pieces, const void* pointer) {
  const auto after = pieces.upper_bound(address(pointer));
  return after != pieces.begin() &&
         address(pointer) - std::prev(after)->first < std::prev(after)->second;
}

void* aligned(std::size_t bytes) {
  constexpr std::size_t kPage = 256;  // cudaMalloc's
  return std::aligned_alloc(kPage, (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage);
}

}  // namespace

bool is_pageable(const void* pointer) {
  const std::scoped_lock lock(memory().mutex);
  return !holds(memory().device, pointer) && !holds(memory().pinned, pointer);
}

void set_device_memory(std::size_t bytes) {
  const std::scoped_lock lock(memory().mutex);
  memory().limit = bytes;
}

}  // namespace emulated_cuda

using emulated_cuda::memory;
using emulated_cuda::spoils_capture;

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::scoped_lock lock(memory().mutex);
  *total = memory().limit;
  *free = memory().limit - std::min(memory().limit, memory().used);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** to, std::size_t bytes) {
  if (spoils_capture()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  const std::scoped_lock lock(memory().mutex);
  *to = nullptr;
  if (bytes > memory().limit - std::min(memory().limit, memory().used)) {
    return cudaErrorMemoryAllocation;
  }
  *to = emulated_cuda::aligned(bytes);
  std::memset(*to, 0xFF, bytes);
  memory().device[emulated_cuda::address(*to)] = bytes;
  memory().used += bytes;
  return cudaSuccess;
}

// As a GPU's, it waits for all that is under way.
cudaError_t cudaFree(void* piece) {
  if (piece == nullptr) {
    return cudaSuccess;
  }
  cudaDeviceSynchronize();
  const std::scoped_lock lock(memory().mutex);
  const auto found = memory().device.find(emulated_cuda::address(piece));
  if (found == memory().device.end()) {
    return cudaErrorInvalidValue;
  }
  memory().used -= found->second;
  memory().device.erase(found);
  std::free(piece);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned /*flags*/) {
  if (spoils_capture()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  const std::scoped_lock lock(memory().mutex);
  *to = emulated_cuda::aligned(bytes);
  if (*to == nullptr) {
    return cudaErrorMemoryAllocation;
  }
  memory().pinned[emulated_cuda::address(*to)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* piece) {
  if (piece == nullptr) {
    return cudaSuccess;
  }
  cudaDeviceSynchronize();
  const std::scoped_lock lock(memory().mutex);
  if (memory().pinned.erase(emulated_cuda::address(piece)) == 0) {
    return cudaErrorInvalidValue;
  }
  std::free(piece);
  return cudaSuccess;
}

cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned /*flags*/) {
  return cudaMalloc(memory, bytes);
}

// Pageable memory is read before the call returns, and written by then.
cudaError_t cudaMemcpyAsync(
    void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  const bool refused =
      stream == nullptr ||
      (stream->captures() && (emulated_cuda::is_pageable(from) || emulated_cuda::is_pageable(to)));
  if (refused && spoils_capture()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  if (bytes > 0 && stream != nullptr && emulated_cuda::is_pageable(from)) {
    const auto* const first = static_cast<const std::byte*>(from);
    stream->enqueue([to, kept = std::vector<std::byte>(first, first + bytes)] {
      std::memcpy(to, kept.data(), kept.size());
    });
  } else if (bytes > 0) {
    emulated_cuda::enqueue(stream, [=] { std::memmove(to, from, bytes); });
  }
  if (stream != nullptr && emulated_cuda::is_pageable(to)) {
    stream->synchronize();
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (stream == nullptr && spoils_capture()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  emulated_cuda::enqueue(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
