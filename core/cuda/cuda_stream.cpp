#include "core/cuda/cuda_stream.h"

#include <string>

#include <cuda.h>

#include "core/cuda/check_cuda.h"
#include "core/cuda/cuda_memory.h"
#include "core/error.h"

namespace slackline {

namespace {

using WaitValue = CUresult (*)(CUstream, CUdeviceptr, std::uint32_t, unsigned);

// Looks in the driver, which programs are not linked with: they start without one.
WaitValue find_wait_value() {
  constexpr unsigned kVersion = 12000;  // of the function's form
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  SL_CUDA_CHECK(cudaGetDriverEntryPointByVersion(
      "cuStreamWaitValue32", &function, kVersion, cudaEnableDefault, &result));
  if (result != cudaDriverEntryPointSuccess || function == nullptr) {
    throw DeviceError("the CUDA driver has no cuStreamWaitValue32");
  }
  return reinterpret_cast<WaitValue>(function);
}

}  // namespace

CudaStream::CudaStream() {
  SL_CUDA_CHECK(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking));
  pool_ = cuda::pool_of_thread();
  faults_ = reinterpret_cast<Faults*>(pool_->take(sizeof(Faults)));
  host_faults_ = reinterpret_cast<Faults*>(cuda::allocate_pinned(sizeof(Faults)));
  if (faults_ == nullptr || host_faults_ == nullptr) {
    throw DeviceError("no memory for a CUDA stream");
  }
  *host_faults_ = {};
  cuda::copy_now(faults_, host_faults_, sizeof(Faults));
}

CudaStream::~CudaStream() {
  cudaStreamDestroy(handle_);
  pool_->give_back(reinterpret_cast<std::byte*>(faults_));
  cuda::release_pinned(reinterpret_cast<std::byte*>(host_faults_));
}

void CudaStream::follow(const CudaEvent& event) const {
  SL_CUDA_CHECK(cudaStreamWaitEvent(handle_, event.handle(), 0));
}

void CudaStream::follow(const std::uint32_t* word, std::uint32_t value) const {
  static const WaitValue wait_value = find_wait_value();
  const CUresult result =
      wait_value(handle_, reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WAIT_VALUE_GEQ);
  if (result != CUDA_SUCCESS) {
    throw DeviceError("cuStreamWaitValue32 failed: error " + std::to_string(result));
  }
}

void CudaStream::synchronize() const {
  cuda::copy(handle_, host_faults_, faults_, sizeof(Faults));
  SL_CUDA_CHECK(cudaStreamSynchronize(handle_));
  if (host_faults_->first.raise != nullptr) {
    const DeviceFault fault = host_faults_->first;
    *host_faults_ = {};
    cuda::copy_now(faults_, host_faults_, sizeof(Faults));
    fault.raise(fault);
  }
}

CudaEvent::CudaEvent(Use use) {
  SL_CUDA_CHECK(cudaEventCreateWithFlags(
      &handle_, use == Use::timing ? cudaEventDefault : cudaEventDisableTiming));
}

CudaEvent::~CudaEvent() {
  cudaEventDestroy(handle_);
}

void CudaEvent::record(const CudaStream& stream) {
  SL_CUDA_CHECK(cudaEventRecord(handle_, stream.handle()));
}

bool CudaEvent::is_done() const {
  const cudaError_t state = cudaEventQuery(handle_);
  if (state == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  SL_CUDA_CHECK(state);
  return true;
}

void CudaEvent::wait() const {
  SL_CUDA_CHECK(cudaEventSynchronize(handle_));
}

double CudaEvent::seconds_since(const CudaEvent& earlier) const {
  constexpr double kSecondsPerMillisecond = 1e-3;
  float milliseconds = 0.0F;
  SL_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, earlier.handle_, handle_));
  return kSecondsPerMillisecond * milliseconds;
}

}  // namespace slackline
