#include "core/cuda/check_cuda.h"

#include <string>

#include "core/error.h"

namespace slackline::cuda {

void check(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) {
    return;
  }
  cudaGetLastError();  // else the next call reports it again
  throw DeviceError(std::string(call) + " failed: " + cudaGetErrorString(error) + " (" +
                    cudaGetErrorName(error) + ") at " + file + ":" + std::to_string(line));
}

}  // namespace slackline::cuda
