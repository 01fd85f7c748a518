#include "core/tensor/host_tensor.h"

#include "core/cuda/cuda_memory.h"

namespace slackline {

HostTensor::HostTensor(const Tensor& tensor, Contents contents) : device_(tensor), host_(tensor) {
  if (tensor.device() != Device::cuda) {
    return;
  }
  copy_ = make_buffer("copy on the host", tensor.dtype(), tensor.shape());
  host_ = copy_.view(tensor.dtype(), tensor.shape());
  if (contents == Contents::copied) {
    cuda::copy_now(host_.raw(), device_.raw(), device_.bytes());
  }
}

void HostTensor::write_back() const {
  if (device_.device() == Device::cuda) {
    cuda::copy_now(device_.raw(), host_.raw(), host_.bytes());
  }
}

}  // namespace slackline
