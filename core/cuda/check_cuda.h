#pragma once

#include <cuda_runtime.h>

namespace slackline::cuda {

// Throws DeviceError with the call and CUDA's own words for it.
void check(cudaError_t error, const char* call, const char* file, int line);

}  // namespace slackline::cuda

#define SL_CUDA_CHECK(call) ::slackline::cuda::check((call), #call, __FILE__, __LINE__)
