#include "core/cuda/cuda_stream.h"

#include "core/cuda/check_cuda.h"

namespace slackline {

CudaStream::CudaStream() {
  SL_CUDA_CHECK(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking));
}

CudaStream::~CudaStream() {
  cudaStreamDestroy(handle_);
}

void CudaStream::synchronize() const {
  SL_CUDA_CHECK(cudaStreamSynchronize(handle_));
}

}  // namespace slackline
