#pragma once

#include <compare>
#include <cstddef>
#include <vector>

// A pipeline schedule as data: what each pipeline rank does in one step, in order. Generators make
// it (make_schedule.h), a validator proves it sound in tests, the timeline times it, the printer
// shows it and the executor runs exactly this list.
//
// p ranks hold v chunks of layers each. Virtual stage c, 0 <= c < p v, is the c-th run of layers of
// the model and lives on rank c % p; an op's `chunk` is its virtual stage. Neighbouring virtual
// stages on different ranks exchange transfers: activations forward, gradients backward. With p = 1
// nothing is transferred.
namespace slackline::schedule {

enum class Kind { gpipe, one_f_one_b, interleaved, zb_h1 };
inline constexpr std::size_t kNumKinds = 4;

// How the executor moves data. asynchronous: receives are posted one pass early and only compute
// waits. blocking: every exchange is waited for before the rank goes on, as Megatron does.
enum class Transfers { asynchronous, blocking };

// Semantics, obeyed literally and in list order on each rank:
//   receive_*       posts a receive and returns at once
//   forward, backward, backward_input
//                   wait for their own posted input, then compute
//   backward        is input gradient and weight gradient in one; a chunk that splits it runs
//                   backward_input and later backward_weight instead
//   send_*          posts a send of what the micro-batch's op just made and returns at once
//   wait            waits for every transfer this rank has posted so far; chunk and micro_batch of
//                   it mean nothing
enum class OpKind {
  receive_forward,
  forward,
  send_forward,
  receive_backward,
  backward,
  backward_input,
  backward_weight,
  send_backward,
  wait
};

struct Op {
  OpKind kind{};
  int chunk{};  // virtual stage
  int micro_batch{};

  auto operator<=>(const Op&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct Schedule {
  Kind kind{};
  Transfers transfers{};
  int num_ranks = 1;          // p
  int num_chunks = 1;         // v, chunks per rank
  int num_micro_batches = 1;  // m
  std::vector<std::vector<Op>> ranks{};

  [[nodiscard]] int num_stages() const { return num_ranks * num_chunks; }  // virtual ones

  [[nodiscard]] int rank_of(int chunk) const { return chunk % num_ranks; }

  // Whether a forward transfer leaves `chunk` (and a backward one comes back to it).
  [[nodiscard]] bool has_transfer_after(int chunk) const {
    return num_ranks > 1 && chunk >= 0 && chunk + 1 < num_stages();
  }

  [[nodiscard]] bool has_transfer_before(int chunk) const { return has_transfer_after(chunk - 1); }

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

[[nodiscard]] constexpr bool is_compute(OpKind kind) {
  return kind == OpKind::forward || kind == OpKind::backward || kind == OpKind::backward_input ||
         kind == OpKind::backward_weight;
}

// A rank, stage or chunk as a place in a list of them.
[[nodiscard]] constexpr std::size_t index(int value) {
  return static_cast<std::size_t>(value);
}

// The op that gives a chunk's input gradient, alone or with its weight gradients.
[[nodiscard]] constexpr bool makes_input_gradient(OpKind kind) {
  return kind == OpKind::backward || kind == OpKind::backward_input;
}

// The op after which a micro-batch's activations of a chunk are no longer needed.
[[nodiscard]] constexpr bool ends_activations(OpKind kind) {
  return kind == OpKind::backward || kind == OpKind::backward_weight;
}

[[nodiscard]] constexpr bool is_receive(OpKind kind) {
  return kind == OpKind::receive_forward || kind == OpKind::receive_backward;
}

[[nodiscard]] constexpr bool is_send(OpKind kind) {
  return kind == OpKind::send_forward || kind == OpKind::send_backward;
}

[[nodiscard]] constexpr bool is_forward_transfer(OpKind kind) {
  return kind == OpKind::receive_forward || kind == OpKind::send_forward;
}

// The virtual stage at the other end of a send or receive.
// REQUIRES: is_send(op.kind) or is_receive(op.kind).
[[nodiscard]] constexpr int peer_chunk(const Op& op) {
  const bool next = op.kind == OpKind::send_forward || op.kind == OpKind::receive_backward;
  return next ? op.chunk + 1 : op.chunk - 1;
}

}  // namespace slackline::schedule
