#pragma once

#include <cstddef>
#include <memory>

#include "core/cuda/memory_pool.h"

struct CUstream_st;

// Memory of the current CUDA device, for Buffer and copies. No toolkit needed here: cuda_memory.cpp
// implements it, and no_cuda.cpp refuses.
namespace slackline::cuda {

// Returns the pool of the calling thread's rank; threads that no rank owns, those of tests, share
// one. Shared, since who takes a piece of it keeps it until that is given back.
[[nodiscard]] std::shared_ptr<MemoryPool> pool_of_thread();

// What the device and the pool have left.
[[nodiscard]] std::size_t free_bytes();

// Memory of the host that the device copies from and to. Null where there is none.
[[nodiscard]] std::byte* allocate_pinned(std::size_t bytes);
void release_pinned(std::byte* memory);

// Blocks until done; for buffers of a run at its start.
void fill_zero(std::byte* memory, std::size_t bytes);

// Between any two places, host or device: done when the call returns.
void copy_now(void* to, const void* from, std::size_t bytes);

// Queues such a copy on the stream. Memory of the host that is not pinned has been read when the
// call returns, and has not been written before synchronize().
void copy(CUstream_st* stream, void* to, const void* from, std::size_t bytes);

}  // namespace slackline::cuda
