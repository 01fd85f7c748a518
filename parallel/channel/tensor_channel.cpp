#include "parallel/channel/tensor_channel.h"

#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

TransferNote TensorChannel::note(const char* what) const {
  return {.what = what, .stage = members_.stage, .micro_batch = micro_batch_};
}

void TensorChannel::place(const Tensor& part, const Tensor& slot) const {
  if (part.raw() != slot.raw() && part.bytes() > 0) {
    cast(routes_->passes->stream, part, slot.reshaped(part.shape()));
  }
}

Transfer TensorChannel::sum(const Tensor& partial) {
  if (share().size == 1) {
    return {};
  }
  return share().sequence_parallel
             ? group_->reduce_scatter(partial, note("sum of partial products"))
             : group_->all_reduce(partial, note("sum of partial products"));
}

Transfer TensorChannel::gather(const Tensor& rows, const Tensor& whole) {
  if (!share().sequence_parallel) {
    return {};
  }
  place(rows, own_rows(whole));
  return group_->all_gather(whole, note("rows of a layer's input"));
}

Transfer TensorChannel::collect(const Tensor& own, const Tensor& all) {
  place(own, all.rows(share().rank, share().rank + 1));
  return share().size == 1 ? Transfer{} : group_->all_gather(all, note("softmax statistics"));
}

Tensor TensorChannel::share_of(const Tensor& boundary) const {
  if (share().sequence_parallel || share().size == 1) {
    return boundary;
  }
  // Heads divide over the ranks, so the columns do, and so do the elements.
  const auto count = static_cast<std::int64_t>(boundary.num_elements());
  return boundary.reshaped({share().size, count / share().size})
      .rows(share().rank, share().rank + 1);
}

void TensorChannel::gather_shares(const Tensor& boundary) {
  if (!share().sequence_parallel && share().size > 1) {
    group_->all_gather(boundary, note("shares of a stage's input")).wait();
  }
}

}  // namespace slackline
