#pragma once

#include "core/comm/communicator.h"
#include "model/tensor_sum.h"

namespace slackline {

// Sums of layers over the ranks of a communicator: all-reduce, or reduce-scatter and all-gather
// with sequence parallelism.
class TensorGroup final : public TensorSum {
 public:
  TensorGroup(Communicator& group, bool sequence_parallel)
      : TensorSum(group.rank(), group.size(), sequence_parallel), group_(&group) {}

  [[nodiscard]] Transfer sum(const Tensor& partial) override;
  [[nodiscard]] Transfer gather(const Tensor& rows, const Tensor& whole) override;
  [[nodiscard]] Transfer collect(const Tensor& own, const Tensor& all) override;

 private:
  Communicator* group_;
};

}  // namespace slackline
