#include "parallel/channel/message_channel.h"

namespace slackline {

namespace {

using schedule::Op;
using schedule::OpKind;

TransferNote note_of(const Op& op) {
  return {.what = schedule::is_forward_transfer(op.kind) ? "activations" : "gradient",
          .stage = op.chunk,
          .micro_batch = op.micro_batch};
}

}  // namespace

Tensor MessageChannel::Message::frame() {
  const std::size_t bytes = codec->frame_bytes();
  if (memory->bytes() < bytes) {
    memory = std::make_shared<Buffer>("frame", bytes, backing_of(codec->end().device));
  }
  return memory->view(DType::u8, {static_cast<std::int64_t>(bytes)});
}

void MessageChannel::send(const Op& op, const Outgoing& outgoing) {
  keep(op, outgoing.share);
  Message& message = op.kind == OpKind::send_forward ? sent_output_ : sent_gradient_;
  message.codec = boundary_codec(op);
  Communicator& group = group_of(op);
  message.transfer = group.send(message.codec == nullptr ? outgoing.share : message.frame(),
                                schedule::peer_chunk(op) % group.size(),
                                note_of(op),
                                encoding(op, outgoing, message));
}

void MessageChannel::receive(const Op& op, const Tensor& share) {
  const bool forward = op.kind == OpKind::receive_forward;
  // It writes what the gradient that was sent last is measured against, or was sent from.
  if (!forward || sent_gradient_.reads_input()) {
    sent_gradient_.transfer.wait();
  }
  Message& message = forward ? input_ : gradient_;
  message.codec = boundary_codec(op);
  Communicator& group = group_of(op);
  message.transfer = group.receive(message.codec == nullptr ? share : message.frame(),
                                   schedule::peer_chunk(op) % group.size(),
                                   note_of(op),
                                   decoding(op, share, message));
}

void MessageChannel::before_pass(const Op& op) {
  if (op.kind == OpKind::forward) {
    input_.transfer.wait();
    sent_output_.transfer.wait();
    return;
  }
  gradient_.transfer.wait();
  if (mask_of(op) != nullptr) {
    // The mask is read from what the next send of this place changes.
    routes_->passes->stream.synchronize();
  }
  sent_gradient_.transfer.wait();
}

void MessageChannel::finish_sends() {
  sent_output_.transfer.wait();
  sent_gradient_.transfer.wait();
}

void MessageChannel::finish() {
  input_.transfer.wait();
  gradient_.transfer.wait();
  finish_sends();
}

void MessageChannel::keep(const Op& op, const Tensor& share) const {
  KeptMessages* keeps = routes_->passes->keeps;
  const schedule::TransferId id = schedule::id_of_send(op);
  if (keeps != nullptr && keeps->num_elements(id.site, id.stage) == 0) {
    const MatrixShape& shape = routes_->share;
    keeps->keep(
        routes_->passes->stream, id.site, id.stage, share.reshaped({shape.rows, shape.columns}));
  }
}

TransferWork MessageChannel::encoding(const Op& op,
                                      const Outgoing& outgoing,
                                      Message& message) const {
  BoundaryCodec* codec = message.codec;
  if (codec == nullptr && !is_masked(op)) {
    return {};
  }
  const CodecStream& at = routes_->codecs->stream();
  if (codec == nullptr) {
    return {.worker = at.worker, .before = [] {}};  // goes the way of what its receiver works on
  }
  const bool trains = routes_->passes->train;
  const auto feedback = trains ? BoundaryCodec::Feedback::on : BoundaryCodec::Feedback::off;
  const MessageKey key = key_of(op, *codec);
  TransferWork job{.worker = at.worker};
  job.before = [=, stream = at.stream, frame = message.frame(), kept = message.memory] {
    codec->encode(stream, outgoing, key, frame, feedback);
  };
  if (trains) {
    job.beside = [=, stream = at.stream, frame = message.frame(), kept = message.memory] {
      codec->settle(stream, key, frame);
    };
  }
  return job;
}

// The gradient of an activation that was sent is masked by what its message kept.
TransferWork MessageChannel::decoding(const Op& op, const Tensor& values, Message& message) {
  BoundaryCodec* codec = message.codec;
  BoundaryCodec* mask = op.kind == OpKind::receive_backward ? mask_of(op) : nullptr;
  if (codec == nullptr && mask == nullptr) {
    return {};
  }
  const CodecStream& at = routes_->codecs->stream();
  TransferWork job{.worker = at.worker};
  const Tensor frame = codec == nullptr ? Tensor() : message.frame();
  Message* sent = &sent_output_;  // it may be sent after this receive has been posted
  job.after = [=, stream = at.stream, kept = message.memory] {
    if (codec != nullptr) {
      codec->decode(stream, frame, values);
    }
    if (mask != nullptr) {
      mask->mask(stream, sent->frame(), values);
    }
  };
  return job;
}

// Whether the receiver masks what the op sends.
bool MessageChannel::is_masked(const Op& op) const {
  if (op.kind != OpKind::send_backward) {
    return false;
  }
  const BoundaryCodec* const received = boundary_codec(
      {.kind = OpKind::receive_forward, .chunk = op.chunk, .micro_batch = op.micro_batch});
  return received != nullptr && received->masks();
}

BoundaryCodec* MessageChannel::mask_of(const Op& op) const {
  BoundaryCodec* const sent = boundary_codec(
      {.kind = OpKind::send_forward, .chunk = op.chunk, .micro_batch = op.micro_batch});
  return sent != nullptr && sent->masks() ? sent : nullptr;
}

BoundaryCodec* MessageChannel::boundary_codec(const Op& op) const {
  return routes_->codecs == nullptr ? nullptr : routes_->codecs->at(op);
}

Communicator& MessageChannel::group_of(const Op& op) const {
  return schedule::is_forward_transfer(op.kind) ? *routes_->peers.forward
                                                : *routes_->peers.backward;
}

MessageKey MessageChannel::key_of(const Op& op, const BoundaryCodec& codec) const {
  const ChannelPeers& peers = routes_->peers;
  return {.seed = routes_->seed,
          .step = routes_->passes->step,
          .micro_batch = static_cast<std::uint64_t>(op.micro_batch),
          .sender = static_cast<std::uint64_t>(op.micro_batch * peers.replicas + peers.replica),
          .first_element =
              static_cast<std::uint64_t>(routes_->tensor_rank) * codec.end().shape.num_elements()};
}

}  // namespace slackline
