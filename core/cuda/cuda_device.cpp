#include "core/cuda/cuda_device.h"

#include <array>
#include <cstdlib>

#include <cuda_runtime.h>

#include "core/cuda/check_cuda.h"
#include "core/cuda/memory_pool.h"
#include "core/error.h"

namespace slackline::cuda {

namespace {

// 13000 is 13.0.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

thread_local RankDevice own_device;

}  // namespace

bool is_built() {
  return true;
}

std::string obstacle() {
  // Work of streams that share one of the driver's queues waits for each other, and a rank has more
  // streams than the usual eight: one may wait for what the next is to bring. Read by the first
  // call.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int driver = 0;
  int runtime = 0;
  int devices = 0;
  SL_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "there is no CUDA driver; install one for CUDA " + version_text(runtime) + " or newer";
  }
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaErrorInsufficientDriver) {
    return "the CUDA driver is of version " + version_text(driver) + " and has to be " +
           version_text(runtime) + " or newer";
  }
  if (error != cudaSuccess || devices == 0) {
    cudaGetLastError();
    return std::string("there is no CUDA device that can be used: ") + cudaGetErrorString(error);
  }
  return "";
}

void use_device(int rank_on_node) {
  const std::string reason = obstacle();
  if (!reason.empty()) {
    throw DeviceError("device cuda: " + reason);
  }
  int devices = 0;
  SL_CUDA_CHECK(cudaGetDeviceCount(&devices));
  adopt_device({rank_on_node % devices, std::make_shared<MemoryPool>()});
}

const RankDevice& device_of_thread() {
  return own_device;
}

void adopt_device(const RankDevice& device) {
  if (device.index >= 0) {
    SL_CUDA_CHECK(cudaSetDevice(device.index));
    own_device = device;
  }
}

std::string device_id() {
  constexpr int kBytes = 32;
  std::array<char, kBytes> text{};
  int device = 0;
  SL_CUDA_CHECK(cudaGetDevice(&device));
  SL_CUDA_CHECK(cudaDeviceGetPCIBusId(text.data(), kBytes, device));
  return text.data();
}

std::string device_text() {
  int device = 0;
  cudaDeviceProp properties{};
  SL_CUDA_CHECK(cudaGetDevice(&device));
  SL_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  constexpr std::size_t kGibibyte = std::size_t{1} << 30U;
  return std::string(properties.name) + ", " + std::to_string(properties.multiProcessorCount) +
         " multiprocessors, " + std::to_string(properties.totalGlobalMem / kGibibyte) + " GiB";
}

}  // namespace slackline::cuda
