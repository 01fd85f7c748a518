#pragma once

#include <cstddef>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/engine/ordered_sum.h"
#include "core/comm/engine/scratch_pool.h"
#include "core/comm/transport/transport.h"
#include "core/tensor/tensor.h"

namespace slackline {

// One message of a step; `peer` counts in the communicator.
struct Piece {
  Message::Way way = Message::Way::send;
  Lane lane = Lane::first;
  int peer = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool done = false;
};

// Messages that go at once, then sums over what arrived, one after the other.
struct Step {
  std::vector<Piece> pieces{};
  std::vector<OrderedSum> sums{};

  // Adds a message; one of nothing is left out, on both sides alike.
  void add(const Piece& piece);
};

// Describes what one rank does for one operation: steps one after the other, and the memory that
// they receive into. It is plain data, which the engine carries out, the same over every transport,
// and NCCL's communicator.
struct Moves {
  std::vector<Step> steps{};
  ScratchPool::Lease scratch{};

  [[nodiscard]] std::size_t bytes_sent() const;
  // Those of them that leave the group of `rank`: `ranks_in_group` neighbours are one.
  [[nodiscard]] std::size_t bytes_sent_across(int rank, int ranks_in_group) const;
};

// Cuts messages to `longest` bytes, the first parts of all before the second ones. Parts of one
// message are told apart by their order alone. REQUIRES: the other ranks do the same; longest > 0.
void cut(Moves& moves, std::size_t longest);

// A message of elements `part` of `data`.
[[nodiscard]] Piece send_piece(int to, const Tensor& data, Slice part, Lane lane);
[[nodiscard]] Piece receive_piece(int from, const Tensor& data, Slice part, Lane lane);

[[nodiscard]] std::byte* byte_of(const Tensor& data, std::size_t element);

// Checks what every sum over `size` ranks requires.
void check_sum(const Tensor& data, SumOrder order, int size);

}  // namespace slackline
