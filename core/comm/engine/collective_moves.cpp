#include "core/comm/engine/collective_moves.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/comm/collective_bytes.h"
#include "core/tensor/tensor.h"

namespace slackline {

namespace {

using Kind = TransferRecord::Kind;
using Way = Hierarchy::Way;

std::size_t bytes_of(const Slice& slice, DType dtype) {
  return slice.count() * size_of(dtype);
}

// Returns the bytes by which algorithms go.
std::size_t whole_bytes_of(const Operation& operation) {
  return std::max(operation.data.bytes(), operation.note.whole_bytes);
}

// Makes the moves of one rank for one operation, which outlives it.
class Steps {
 public:
  Steps(const Operation& operation,
        int rank,
        int size,
        ScratchPool& pool,
        const Hierarchy& hierarchy);

  // Makes them. Called once.
  [[nodiscard]] Moves all();

 private:
  [[nodiscard]] bool overlaps() const { return way_ == Way::overlapped; }

  [[nodiscard]] int rank_at(int group, int place) const { return group * num_places_ + place; }

  // The group `distance` after this one, round the ring of groups; `distance` may be negative.
  [[nodiscard]] int group_at(int distance) const {
    return (group_ + distance + num_groups_) % num_groups_;
  }

  [[nodiscard]] Slice slice(int group, int place) const;

  void add_reduction();
  void take_scratch();
  // Returns where this group's sum of the slice of rank (group, this place) stands.
  [[nodiscard]] std::byte* group_sum(int group) const;
  // Adds the slice of rank (group, this place) inside this group; its addends arrive at `landing`.
  // Returns what follows them there.
  std::byte* reduce_inside(int group, std::byte* landing, Step& step) const;
  void exchange_sums(int distance, Step& step) const;
  void add_groups(Step& step) const;

  void add_gather();
  void exchange_slices(int distance, Step& step) const;
  // Tells the own group the slices of another one.
  void gather_inside(int group, Step& step) const;

  void add_all_to_all();
  void add_broadcast();
  void add_tree_broadcast();
  void add_barrier();

  const Operation& operation_;
  const Tensor& data_;
  int rank_;
  int size_;
  ScratchPool& pool_;
  Way way_;
  int num_places_;
  int num_groups_;
  int group_;
  int place_;
  bool is_exchange_;  // an all-reduce in which every rank's slice is the whole tensor
  DType sum_dtype_;   // of a group's sums
  std::byte* from_groups_ = nullptr;  // where the others' sums of the own slice arrive, in order
  std::byte* group_sums_ = nullptr;   // null: they stay in the tensor
  std::byte* from_ranks_ = nullptr;   // where slices of the other ranks arrive
  Moves moves_{};
};

// Several groups' sums of bf16 stay in fp32, so that they are rounded once.
Steps::Steps(
    const Operation& operation, int rank, int size, ScratchPool& pool, const Hierarchy& hierarchy)
    : operation_(operation),
      data_(operation.data),
      rank_(rank),
      size_(size),
      pool_(pool),
      way_(way_of({.kind = operation.kind,
                   .elements = whole_bytes_of(operation),
                   .element_size = 1,
                   .order = operation.order,
                   .hierarchy = hierarchy},
                  size)),
      num_places_(way_ == Way::direct ? size : hierarchy.ranks_in_group),
      num_groups_(size / num_places_),
      group_(rank / num_places_),
      place_(rank % num_places_),
      is_exchange_(way_ == Way::direct && operation.kind == Kind::all_reduce &&
                   exchanges_all(whole_bytes_of(operation), size)),
      sum_dtype_(num_groups_ > 1 && data_.dtype() == DType::bf16 ? DType::f32 : data_.dtype()) {}

Moves Steps::all() {
  switch (operation_.kind) {
    case Kind::all_reduce:
      add_reduction();
      if (!is_exchange_) {
        add_gather();
      }
      break;
    case Kind::reduce_scatter:
      add_reduction();
      break;
    case Kind::all_gather:
      add_gather();
      break;
    case Kind::all_to_all:
      add_all_to_all();
      break;
    case Kind::broadcast:
      add_broadcast();
      break;
    case Kind::barrier:
      add_barrier();
      break;
    case Kind::send:
    case Kind::receive:
      SL_CHECK(false, std::string(name_of(operation_.kind)) + " is no collective");
  }
  return std::move(moves_);
}

Slice Steps::slice(int group, int place) const {
  const std::size_t elements = data_.num_elements();
  return is_exchange_ ? Slice{0, elements} : slice_of(elements, rank_at(group, place), size_);
}

void Steps::add_reduction() {
  check_sum(data_, operation_.order, size_);
  take_scratch();
  if (overlaps()) {
    for (int k = 0; k < num_groups_; ++k) {
      Step& step = moves_.steps.emplace_back();
      if (k > 0) {
        exchange_sums(k, step);
      }
      reduce_inside(group_at(k + 1), from_ranks_, step);
    }
  } else {
    Step& inside = moves_.steps.emplace_back();
    std::byte* landing = from_ranks_;
    for (int group = 0; group < num_groups_; ++group) {
      landing = reduce_inside(group, landing, inside);
    }
    if (num_groups_ == 1) {
      return;
    }
    Step& between = moves_.steps.emplace_back();
    for (int k = 1; k < num_groups_; ++k) {
      exchange_sums(k, between);
    }
  }
  add_groups(moves_.steps.back());
}

// Counts the slices that this operation moves, not those of the larger one that it may stand for.
void Steps::take_scratch() {
  std::size_t at_once = slice(0, place_).count();  // none of the place is larger
  for (int group = 1; group < num_groups_ && !overlaps(); ++group) {
    at_once += slice(group, place_).count();
  }
  const bool widens = sum_dtype_ != data_.dtype();
  const std::size_t from_groups =
      static_cast<std::size_t>(num_groups_ - 1) * bytes_of(slice(group_, place_), sum_dtype_);
  const std::size_t group_sums = widens ? at_once * size_of(sum_dtype_) : 0;
  const std::size_t from_ranks =
      static_cast<std::size_t>(num_places_ - 1) * at_once * size_of(data_.dtype());
  if (from_groups + group_sums + from_ranks == 0) {
    return;
  }
  moves_.scratch = pool_.take(from_groups + group_sums + from_ranks);
  from_groups_ = moves_.scratch.data();
  group_sums_ = widens ? from_groups_ + from_groups : nullptr;
  from_ranks_ = from_groups_ + from_groups + group_sums;
}

std::byte* Steps::group_sum(int group) const {
  if (group_sums_ == nullptr) {
    return byte_of(data_, slice(group, place_).begin);
  }
  std::byte* sum = group_sums_;  // of one at a time, which has gone when the next one is made
  for (int before = 0; before < group && !overlaps(); ++before) {
    sum += bytes_of(slice(before, place_), sum_dtype_);
  }
  return sum;
}

std::byte* Steps::reduce_inside(int group, std::byte* landing, Step& step) const {
  const Slice own = slice(group, place_);
  OrderedSum added{.dtype = data_.dtype(),
                   .output_dtype = sum_dtype_,
                   .order = operation_.order,
                   .output = group_sum(group),
                   .elements = own.count()};
  for (int place = 0; place < num_places_; ++place) {
    if (place == place_) {
      added.inputs.push_back(byte_of(data_, own.begin));
      continue;
    }
    const std::size_t bytes = bytes_of(own, data_.dtype());
    step.add({.way = Message::Way::receive,
              .lane = Lane::first,
              .peer = rank_at(group_, place),
              .data = landing,
              .bytes = bytes});
    added.inputs.push_back(landing);
    landing += bytes;
  }
  for (int distance = 1; distance < num_places_; ++distance) {
    const int place = (place_ + distance) % num_places_;
    step.add(send_piece(rank_at(group_, place), data_, slice(group, place), Lane::first));
  }
  if (own.count() > 0) {
    step.sums.push_back(std::move(added));
  }
  return landing;
}

// The sums of the own slice stand in the order of groups, this one's left out.
void Steps::exchange_sums(int distance, Step& step) const {
  const int to = group_at(distance);
  const int from = group_at(-distance);
  const std::size_t own = bytes_of(slice(group_, place_), sum_dtype_);
  const auto row = static_cast<std::size_t>(from < group_ ? from : from - 1);
  step.add({.way = Message::Way::receive,
            .lane = Lane::first,
            .peer = rank_at(from, place_),
            .data = from_groups_ + row * own,
            .bytes = own});
  step.add({.way = Message::Way::send,
            .lane = Lane::first,
            .peer = rank_at(to, place_),
            .data = group_sum(to),
            .bytes = bytes_of(slice(to, place_), sum_dtype_)});
}

void Steps::add_groups(Step& step) const {
  const Slice own = slice(group_, place_);
  if (own.count() == 0) {
    return;
  }
  OrderedSum added{.dtype = sum_dtype_,
                   .output_dtype = data_.dtype(),
                   .output = byte_of(data_, own.begin),
                   .elements = own.count()};
  const std::byte* next = from_groups_;
  for (int group = 0; group < num_groups_; ++group) {
    if (group == group_) {
      added.inputs.push_back(group_sum(group));
      continue;
    }
    added.inputs.push_back(next);
    next += bytes_of(own, sum_dtype_);
  }
  step.sums.push_back(std::move(added));
}

void Steps::add_gather() {
  if (overlaps()) {
    for (int k = 0; k < num_groups_; ++k) {
      Step& step = moves_.steps.emplace_back();
      if (k + 1 < num_groups_) {
        exchange_slices(k + 1, step);
      }
      gather_inside(group_at(-k), step);
    }
    return;
  }
  if (num_groups_ > 1) {
    Step& between = moves_.steps.emplace_back();
    for (int k = 1; k < num_groups_; ++k) {
      exchange_slices(k, between);
    }
  }
  Step& inside = moves_.steps.emplace_back();
  for (int group = 0; group < num_groups_; ++group) {
    gather_inside(group, inside);
  }
}

void Steps::exchange_slices(int distance, Step& step) const {
  const int from = group_at(-distance);
  const int to = group_at(distance);
  step.add(receive_piece(rank_at(from, place_), data_, slice(from, place_), Lane::second));
  step.add(send_piece(rank_at(to, place_), data_, slice(group_, place_), Lane::second));
}

void Steps::gather_inside(int group, Step& step) const {
  for (int distance = 1; distance < num_places_; ++distance) {
    const int from = (place_ + num_places_ - distance) % num_places_;
    step.add(receive_piece(rank_at(group_, from), data_, slice(group, from), Lane::second));
  }
  for (int distance = 1; distance < num_places_; ++distance) {
    const int to = (place_ + distance) % num_places_;
    step.add(send_piece(rank_at(group_, to), data_, slice(group, place_), Lane::second));
  }
}

void Steps::add_all_to_all() {
  const Tensor& to = operation_.to;
  SL_CHECK_EQ(data_.bytes(), to.bytes());
  SL_CHECK(data_.num_elements() % static_cast<std::size_t>(size_) == 0,
           std::to_string(data_.num_elements()) + " elements over " + std::to_string(size_));
  Step& step = moves_.steps.emplace_back();
  for (int i = 1; i < size_; ++i) {
    const int source = (rank_ + size_ - i) % size_;
    step.add(receive_piece(source, to, slice(0, source), Lane::first));
  }
  for (int i = 1; i < size_; ++i) {
    const int target = (rank_ + i) % size_;
    step.add(send_piece(target, data_, slice(0, target), Lane::first));
  }
}

void Steps::add_broadcast() {
  if (data_.bytes() <= kTreeBytes) {
    add_tree_broadcast();
    return;
  }
  const int root = operation_.peer;
  Step gather;
  gather_inside(0, gather);
  if (rank_ == root) {
    std::erase_if(gather.pieces, [](const Piece& p) { return p.way == Message::Way::receive; });
    for (int i = 1; i < size_; ++i) {
      const int to = (rank_ + i) % size_;
      gather.add(send_piece(to, data_, slice(0, to), Lane::first));
    }
  } else {
    Step& scatter = moves_.steps.emplace_back();
    scatter.add(receive_piece(root, data_, slice(0, rank_), Lane::first));
    std::erase_if(gather.pieces, [root](const Piece& piece) {
      return piece.way == Message::Way::send && piece.peer == root;
    });
  }
  moves_.steps.push_back(std::move(gather));
}

// Counted from the root, rank r has its parent at r without its lowest set bit, and children at
// r + 2^k for the k below that bit; the furthest child, with the largest subtree, goes first.
void Steps::add_tree_broadcast() {
  const int root = operation_.peer;
  const Slice all{0, data_.num_elements()};
  const int place = (rank_ + size_ - root) % size_;
  const auto rank_of = [&](int p) { return (p + root) % size_; };
  int reach = 1;
  while (reach < size_ && (place & reach) == 0) {
    reach <<= 1;
  }
  if (place != 0) {
    Step& step = moves_.steps.emplace_back();
    step.add(receive_piece(rank_of(place - reach), data_, all, Lane::first));
  }
  Step& step = moves_.steps.emplace_back();
  for (int distance = reach >> 1; distance > 0; distance >>= 1) {
    if (place + distance < size_) {
      step.add(send_piece(rank_of(place + distance), data_, all, Lane::first));
    }
  }
}

void Steps::add_barrier() {
  for (int distance = 1; distance < size_; distance <<= 1) {
    Step& step = moves_.steps.emplace_back();
    step.pieces.push_back(
        {.way = Message::Way::receive, .peer = (rank_ + size_ - distance) % size_});
    step.pieces.push_back({.way = Message::Way::send, .peer = (rank_ + distance) % size_});
  }
}

}  // namespace

Moves moves_of(const Operation& collective,
               int rank,
               int size,
               const std::shared_ptr<ScratchPool>& pool,
               const Hierarchy& hierarchy) {
  return Steps(collective, rank, size, *pool, hierarchy).all();
}

}  // namespace slackline
