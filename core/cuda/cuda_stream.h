#pragma once

#include <cstddef>
#include <memory>

struct CUstream_st;  // the toolkit's cudaStream_t points to one

namespace slackline {

// What a Stream of device cuda adds: a non-blocking stream of the current device. Calls return
// when work is queued; errors of queued work surface in a later call, as DeviceError.
//
// This header needs no toolkit. cuda_stream.cpp implements it; no_cuda.cpp, in programs without
// the backend, refuses to make one.
class CudaStream {
 public:
  CudaStream();
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  [[nodiscard]] CUstream_st* handle() const { return handle_; }

  // Blocks until all that was submitted is done.
  void synchronize() const;

 private:
  CUstream_st* handle_ = nullptr;
};

}  // namespace slackline
