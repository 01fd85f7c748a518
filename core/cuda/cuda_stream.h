#pragma once

#include <cstdint>
#include <memory>

#include "core/tensor/device_fault.h"

struct CUstream_st;  // the toolkit's cudaStream_t points to one
struct CUevent_st;

namespace slackline {

class CudaEvent;

namespace cuda {
class MemoryPool;
}

// What a Stream of device cuda adds: a non-blocking stream of the current device. Calls return
// when work is queued; errors of queued work surface in a later call, as DeviceError.
//
// This header needs no toolkit. cuda_stream.cpp implements it; no_cuda.cpp, in programs without
// the backend, refuses to make one.
class CudaStream {
 public:
  // In the device's memory, for kernels that check data.
  struct Faults {
    static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

    DeviceFault first{};
    std::uint32_t position = kNowhere;  // scratch of such kernels, left as it was
  };

  CudaStream();
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  [[nodiscard]] CUstream_st* handle() const { return handle_; }

  [[nodiscard]] Faults* faults() const { return faults_; }

  // What is submitted from now on waits for the event.
  void follow(const CudaEvent& event) const;

  // What is submitted from now on waits until the word is `value`, or past it, as numbers that go
  // round. REQUIRES: pinned memory.
  void follow(const std::uint32_t* word, std::uint32_t value) const;

  // Blocks until all that was submitted is done. Raises the first fault since the last time.
  void synchronize() const;

 private:
  CUstream_st* handle_ = nullptr;
  std::shared_ptr<cuda::MemoryPool> pool_{};  // of faults_; lives as long as a piece of it
  Faults* faults_ = nullptr;
  Faults* host_faults_ = nullptr;  // pinned: what faults_ was at the last synchronize()
};

// A point in the work of a CudaStream.
class CudaEvent {
 public:
  enum class Use { waiting, timing };

  explicit CudaEvent(Use use = Use::waiting);
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  // Becomes what has been submitted to the stream by now.
  void record(const CudaStream& stream);

  [[nodiscard]] CUevent_st* handle() const { return handle_; }

  // Blocks until it is done.
  void wait() const;
  [[nodiscard]] bool is_done() const;

  // REQUIRES: both are for timing, recorded and done.
  [[nodiscard]] double seconds_since(const CudaEvent& earlier) const;

 private:
  CUevent_st* handle_ = nullptr;
};

}  // namespace slackline
