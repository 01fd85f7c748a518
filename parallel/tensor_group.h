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

  // Which chunk and micro-batch the next transfers are for: what messages about failures say.
  void set_place(int stage, int micro_batch) {
    stage_ = stage;
    micro_batch_ = micro_batch;
  }

  [[nodiscard]] TransferNote note(const char* what) const {
    return {.what = what, .stage = stage_, .micro_batch = micro_batch_};
  }

  [[nodiscard]] Transfer sum(const Tensor& partial) override;
  [[nodiscard]] Transfer gather(const Tensor& rows, const Tensor& whole) override;
  [[nodiscard]] Transfer collect(const Tensor& own, const Tensor& all) override;

 private:
  Communicator* group_;
  int stage_ = -1;
  int micro_batch_ = -1;
};

}  // namespace slackline
