#pragma once

#include "core/tensor/buffer.h"
#include "core/tensor/tensor.h"

namespace slackline {

// What the host sees of a tensor: the tensor itself where the host can read it, else a copy. For
// what has to pass through the host: initial weights, checkpoints, samples, losses. Blocks; ops
// that write the tensor must be done before (Stream::synchronize).
class HostTensor {
 public:
  enum class Contents { copied, undefined };

  explicit HostTensor(const Tensor& tensor, Contents contents = Contents::copied);

  [[nodiscard]] const Tensor& tensor() const { return host_; }

  // Brings what was written to the tensor's device.
  void write_back() const;

 private:
  Tensor device_;
  Buffer copy_;
  Tensor host_;
};

}  // namespace slackline
