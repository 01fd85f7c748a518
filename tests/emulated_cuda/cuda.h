#pragma once

// The part of the CUDA driver's interface that the CUDA backend uses; see cuda_runtime.h.

#include <cstdint>

#include "tests/emulated_cuda/cuda_runtime.h"

// NOLINTBEGIN(readability-identifier-naming): names are the toolkit's

enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };

inline constexpr unsigned CU_STREAM_WAIT_VALUE_GEQ = 0;

using CUstream = CUstream_st*;
using CUdeviceptr = unsigned long long;

// NOLINTEND(readability-identifier-naming)
