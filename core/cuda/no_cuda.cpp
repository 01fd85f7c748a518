#include "core/cuda/cuda_memory.h"
#include "core/cuda/cuda_stream.h"
#include "core/error.h"

// What stands in a program without the CUDA backend. Weak: the backend's own definitions, linked
// into programs that have it, win.
namespace slackline {

namespace {

[[noreturn]] void refuse() {
  throw DeviceError("this program was built without CUDA (preset cuda builds one with it)");
}

}  // namespace

[[gnu::weak]] CudaStream::CudaStream() {
  refuse();
}

[[gnu::weak]] CudaStream::~CudaStream() = default;

[[gnu::weak]] void CudaStream::synchronize() const {}

namespace cuda {

[[gnu::weak]] std::byte* allocate(std::size_t /*bytes*/) {
  refuse();
}

[[gnu::weak]] void release(std::byte* /*memory*/) {}

[[gnu::weak]] void fill_zero(std::byte* /*memory*/, std::size_t /*bytes*/) {}

[[gnu::weak]] void copy(CUstream_st* /*stream*/,
                        void* /*to*/,
                        const void* /*from*/,
                        std::size_t /*bytes*/) {}

}  // namespace cuda

}  // namespace slackline
