#include "parallel/step/tensor_group.h"

#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

void TensorGroup::place(const Tensor& part, const Tensor& slot) const {
  if (part.raw() != slot.raw() && part.bytes() > 0) {
    cast(stream_, part, slot.reshaped(part.shape()));
  }
}

Transfer TensorGroup::sum(const Tensor& partial) {
  if (size() == 1) {
    return {};
  }
  return sequence_parallel() ? group_->reduce_scatter(partial, note("sum of partial products"))
                             : group_->all_reduce(partial, note("sum of partial products"));
}

Transfer TensorGroup::gather(const Tensor& rows, const Tensor& whole) {
  if (!sequence_parallel()) {
    return {};
  }
  place(rows, own_rows(whole));
  return group_->all_gather(whole, note("rows of a layer's input"));
}

Transfer TensorGroup::collect(const Tensor& own, const Tensor& all) {
  place(own, all.rows(rank(), rank() + 1));
  return size() == 1 ? Transfer{} : group_->all_gather(all, note("softmax statistics"));
}

}  // namespace slackline
