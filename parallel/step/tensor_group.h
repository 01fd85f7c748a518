#pragma once

#include "core/comm/communicator.h"
#include "core/tensor/stream.h"
#include "model/tensor_sum.h"

namespace slackline {

// Sums of layers over the ranks of a communicator: all-reduce, or reduce-scatter and all-gather
// with sequence parallelism.
class TensorGroup final : public TensorSum {
 public:
  // Copies into place run on `stream`.
  TensorGroup(Communicator& group, bool sequence_parallel, StreamView stream)
      : TensorSum(group.rank(), group.size(), sequence_parallel), group_(&group), stream_(stream) {}

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
  // Puts `part` where an in-place collective expects it.
  void place(const Tensor& part, const Tensor& slot) const;

  Communicator* group_;
  StreamView stream_;
  int stage_ = -1;
  int micro_batch_ = -1;
};

}  // namespace slackline
