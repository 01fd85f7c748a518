#include "core/comm/engine/collective_steps.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/comm/collective_bytes.h"

namespace slackline {

Slice CollectiveSteps::slice(const Tensor& data, int rank) const {
  return slice_of(data.num_elements(), rank, size_);
}

Moves CollectiveSteps::all_reduce(const Tensor& data,
                                  SumOrder order,
                                  std::size_t whole_bytes) const {
  check_sum(data, order, size_);
  if (exchanges_all(std::max(data.bytes(), whole_bytes), size_)) {
    return gathered_all_reduce(data, order);
  }
  Moves moves;
  add_reduction(data, order, moves);
  moves.steps.push_back(gather_step(data, Lane::second));
  return moves;
}

Moves CollectiveSteps::gathered_all_reduce(const Tensor& data, SumOrder order) const {
  Moves moves;
  Step step;
  const Slice all{0, data.num_elements()};
  receive_and_sum(data, all, order, moves, step);
  for (int i = 1; i < size_; ++i) {
    step.add(send_piece((rank_ + i) % size_, data, all, Lane::first));
  }
  moves.steps.push_back(std::move(step));
  return moves;
}

Moves CollectiveSteps::reduce_scatter(const Tensor& data, SumOrder order) const {
  check_sum(data, order, size_);
  Moves moves;
  add_reduction(data, order, moves);
  return moves;
}

void CollectiveSteps::add_reduction(const Tensor& data, SumOrder order, Moves& moves) const {
  Step step;
  receive_and_sum(data, slice(data, rank_), order, moves, step);
  for (int i = 1; i < size_; ++i) {
    const int to = (rank_ + i) % size_;
    step.add(send_piece(to, data, slice(data, to), Lane::first));
  }
  moves.steps.push_back(std::move(step));
}

void CollectiveSteps::receive_and_sum(
    const Tensor& data, Slice part, SumOrder order, Moves& moves, Step& step) const {
  if (part.count() == 0) {
    return;
  }
  const std::size_t bytes = part.count() * size_of(data.dtype());
  moves.scratch = pool_->take(bytes * static_cast<std::size_t>(size_ - 1));
  std::byte* const own = byte_of(data, part.begin);
  std::byte* next = moves.scratch.data();
  OrderedSum sum{.dtype = data.dtype(), .order = order, .output = own, .elements = part.count()};
  for (int from = 0; from < size_; ++from) {
    if (from == rank_) {
      sum.inputs.push_back(own);
      continue;
    }
    step.pieces.push_back({.way = Message::Way::receive,
                           .lane = Lane::first,
                           .peer = from,
                           .data = next,
                           .bytes = bytes});
    sum.inputs.push_back(next);
    next += bytes;
  }
  step.sums.push_back(std::move(sum));
}

Step CollectiveSteps::gather_step(const Tensor& data, Lane lane) const {
  Step step;
  for (int i = 1; i < size_; ++i) {
    const int from = (rank_ + size_ - i) % size_;
    step.add(receive_piece(from, data, slice(data, from), lane));
  }
  for (int i = 1; i < size_; ++i) {
    step.add(send_piece((rank_ + i) % size_, data, slice(data, rank_), lane));
  }
  return step;
}

Moves CollectiveSteps::all_gather(const Tensor& data) const {
  Moves moves;
  moves.steps.push_back(gather_step(data, Lane::first));
  return moves;
}

Moves CollectiveSteps::all_to_all(const Tensor& from, const Tensor& to) const {
  SL_CHECK_EQ(from.bytes(), to.bytes());
  SL_CHECK(from.num_elements() % static_cast<std::size_t>(size_) == 0,
           std::to_string(from.num_elements()) + " elements over " + std::to_string(size_));
  const auto part_of = [&](int rank) { return slice_of(from.num_elements(), rank, size_); };
  Moves moves;
  Step step;
  for (int i = 1; i < size_; ++i) {
    const int source = (rank_ + size_ - i) % size_;
    step.add(receive_piece(source, to, part_of(source), Lane::first));
  }
  for (int i = 1; i < size_; ++i) {
    const int target = (rank_ + i) % size_;
    step.add(send_piece(target, from, part_of(target), Lane::first));
  }
  moves.steps.push_back(std::move(step));
  return moves;
}

Moves CollectiveSteps::broadcast(const Tensor& data, int root) const {
  if (data.bytes() <= kTreeBytes) {
    return tree_broadcast(data, root);
  }
  Moves moves;
  if (rank_ == root) {
    Step step = gather_step(data, Lane::second);
    std::erase_if(step.pieces, [](const Piece& p) { return p.way == Message::Way::receive; });
    for (int i = 1; i < size_; ++i) {
      const int to = (rank_ + i) % size_;
      step.add(send_piece(to, data, slice(data, to), Lane::first));
    }
    moves.steps.push_back(std::move(step));
    return moves;
  }
  Step scatter;
  scatter.add(receive_piece(root, data, slice(data, rank_), Lane::first));
  moves.steps.push_back(std::move(scatter));
  Step gather = gather_step(data, Lane::second);
  std::erase_if(gather.pieces, [root](const Piece& piece) {
    return piece.way == Message::Way::send && piece.peer == root;
  });
  moves.steps.push_back(std::move(gather));
  return moves;
}

// Counted from the root, rank r has its parent at r without its lowest set bit, and children at
// r + 2^k for the k below that bit; the furthest child, with the largest subtree, goes first.
Moves CollectiveSteps::tree_broadcast(const Tensor& data, int root) const {
  const Slice all{0, data.num_elements()};
  const int place = (rank_ + size_ - root) % size_;
  const auto rank_at = [&](int p) { return (p + root) % size_; };
  int reach = 1;
  while (reach < size_ && (place & reach) == 0) {
    reach <<= 1;
  }
  Moves moves;
  if (place != 0) {
    Step step;
    step.add(receive_piece(rank_at(place - reach), data, all, Lane::first));
    moves.steps.push_back(std::move(step));
  }
  Step step;
  for (int distance = reach >> 1; distance > 0; distance >>= 1) {
    if (place + distance < size_) {
      step.add(send_piece(rank_at(place + distance), data, all, Lane::first));
    }
  }
  moves.steps.push_back(std::move(step));
  return moves;
}

Moves CollectiveSteps::barrier() const {
  Moves moves;
  for (int distance = 1; distance < size_; distance <<= 1) {
    Step step;
    step.pieces.push_back(
        {.way = Message::Way::receive, .peer = (rank_ + size_ - distance) % size_});
    step.pieces.push_back({.way = Message::Way::send, .peer = (rank_ + distance) % size_});
    moves.steps.push_back(std::move(step));
  }
  return moves;
}

}  // namespace slackline
