#pragma once

#include "core/comm/communicator.h"
#include "model/tensor_sum.h"
#include "parallel/channel/channel.h"
#include "parallel/channel/message_channel.h"
#include "parallel/schedule/transfer_class.h"

namespace slackline {

// What the passes of a rank exchange over the tensor ranks of its stage: sums of partial products,
// by all-reduce, or with sequence parallelism by reduce-scatter and all-gather, and the shares of a
// boundary tensor. Whether a sum travels plain is known here alone; all do. Exchanges belong to the
// pass that began last, and every rank of the group makes the same ones of a pass in the same
// order. Used by the rank's thread.
class TensorChannel final : public TensorSum, public Channel {
 public:
  // `group` and `routes` outlive this. Copies into place run on the stream of the routes' passes.
  TensorChannel(Communicator& group, bool sequence_parallel, const MessageRoutes& routes)
      : TensorSum(group.rank(), group.size(), sequence_parallel),
        group_(&group),
        routes_(&routes) {}

  // Names the class of the sums that follow, and the micro-batch that they are of.
  void begin_pass(const schedule::TransferClass& members, int micro_batch) {
    members_ = members;
    micro_batch_ = micro_batch;
  }

  [[nodiscard]] Transfer sum(const Tensor& partial) override;
  [[nodiscard]] Transfer gather(const Tensor& rows, const Tensor& whole) override;
  [[nodiscard]] Transfer collect(const Tensor& own, const Tensor& all) override;

  // Returns what this rank sends of a boundary tensor: all of its rows where they are cut over the
  // ranks already, else a slice.
  [[nodiscard]] Tensor share_of(const Tensor& boundary) const;

  // Puts the slices of all ranks together, where share_of() is one.
  void gather_shares(const Tensor& boundary);

 private:
  // Puts `part` where an in-place collective expects it.
  void place(const Tensor& part, const Tensor& slot) const;
  // What messages about failures say.
  [[nodiscard]] TransferNote note(const char* what) const;

  Communicator* group_;
  const MessageRoutes* routes_;
  schedule::TransferClass members_{};
  int micro_batch_ = -1;
};

}  // namespace slackline
