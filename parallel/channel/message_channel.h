#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/comm/communicator.h"
#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"
#include "parallel/channel/boundary_codecs.h"
#include "parallel/channel/kept_messages.h"
#include "parallel/schedule/ops.h"

namespace slackline {

// The passes that messages belong to: the same on all ranks but for `keeps`.
struct PassesOfStep {
  StreamView stream;
  std::uint64_t step = 1;
  bool train = true;              // else nothing is remembered from message to message
  KeptMessages* keeps = nullptr;  // of each class what is sent first; null: nothing is kept
};

// The groups of a rank's mesh; they outlive the channels.
struct ChannelPeers {
  Communicator* tensor = nullptr;
  Communicator* data = nullptr;
  Communicator* forward = nullptr;  // the ranks of one pipeline, once for each direction
  Communicator* backward = nullptr;
  int replica = 0;  // this rank's among the data ranks of all workers
  int replicas = 1;
};

// All messages of a rank with other stages share these.
struct MessageRoutes {
  ChannelPeers peers{};
  int tensor_rank = 0;
  MatrixShape share{};  // of a boundary tensor, as codecs see it
  std::uint64_t seed = 0;
  const BoundaryCodecs* codecs = nullptr;  // null: everything travels plain
  std::optional<PassesOfStep> passes{};
};

// The messages of one micro-batch in flight, to and from the stages before and behind its own, and
// of those that follow it in its place. Whether a message is coded, by what, with which residual
// and under which mask, is known here alone. Each call names an op of the rank's list. Used by the
// rank's thread; what is sent and received is also read and written by the codecs' until it has
// been waited for.
class MessageChannel {
 public:
  // `routes` outlives this.
  explicit MessageChannel(const MessageRoutes& routes) : routes_(&routes) {}

  using Outgoing = BoundaryCodec::Outgoing;

  // Begins a transfer; what it may overwrite has been waited for.
  void send(const schedule::Op& op, const Outgoing& outgoing);
  void receive(const schedule::Op& op, const Tensor& share);

  // Waits for what a pass reads, and for what the micro-batch before in this place sent of what the
  // pass overwrites.
  void before_pass(const schedule::Op& op);

  // Waits until what was sent may be overwritten, and for everything.
  void finish_sends();
  void finish();

 private:
  // A transfer, and its frame where it is coded.
  struct Message {
    BoundaryCodec* codec = nullptr;
    // Holds the frame. Replaced by a larger buffer when a frame does not fit. Shared with jobs on
    // the codecs' stream, which may still read a frame that has been sent.
    std::shared_ptr<Buffer> memory = std::make_shared<Buffer>();
    Transfer transfer{};  // last: ends before its memory

    [[nodiscard]] Tensor frame();

    // Returns whether it is under way, and measured against the input of the stage that sent it.
    [[nodiscard]] bool reads_input() const {
      return !transfer.is_empty() && codec != nullptr && codec->is_sampled();
    }
  };

  void keep(const schedule::Op& op, const Tensor& share) const;
  // What codecs do with a message, on their stream.
  [[nodiscard]] TransferWork encoding(const schedule::Op& op,
                                      const Outgoing& outgoing,
                                      Message& message) const;
  [[nodiscard]] TransferWork decoding(const schedule::Op& op,
                                      const Tensor& values,
                                      Message& message);
  // Null where the transfer of a send or receive travels plain.
  [[nodiscard]] BoundaryCodec* boundary_codec(const schedule::Op& op) const;
  // The codec that sent the activation of a gradient that arrives, where it masks that.
  [[nodiscard]] BoundaryCodec* mask_of(const schedule::Op& op) const;
  [[nodiscard]] bool is_masked(const schedule::Op& op) const;
  [[nodiscard]] Communicator& group_of(const schedule::Op& op) const;
  [[nodiscard]] MessageKey key_of(const schedule::Op& op, const BoundaryCodec& codec) const;

  const MessageRoutes* routes_;
  Message sent_output_{};  // before gradient_, which may be masked by it
  Message sent_gradient_{};
  Message input_{};     // arriving
  Message gradient_{};  // arriving
};

}  // namespace slackline
