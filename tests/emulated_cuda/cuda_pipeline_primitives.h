#pragma once

#include <cstddef>

#include "tests/emulated_cuda/cuda_runtime.h"

// Names are the toolkit's.
// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier)

inline void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes) {
  emulated_cuda::begin_copy(to, from, bytes);
}

inline void __pipeline_commit() {
  emulated_cuda::close_copies();
}

inline void __pipeline_wait_prior(std::size_t newest) {
  emulated_cuda::make_copies_but(newest);
}

// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)
