#include "core/comm/engine/hierarchical_steps.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/comm/collective_bytes.h"
#include "core/comm/engine/collective_steps.h"

namespace slackline {

namespace {

using Kind = TransferRecord::Kind;

std::size_t bytes_of(const Slice& slice, DType dtype) {
  return slice.count() * size_of(dtype);
}

}  // namespace

HierarchicalSteps::HierarchicalSteps(int rank,
                                     int size,
                                     std::shared_ptr<ScratchPool> pool,
                                     const Hierarchy& hierarchy,
                                     Hierarchy::Way way)
    : size_(size),
      num_places_(hierarchy.ranks_in_group),
      num_groups_(hierarchy.num_groups(size)),
      group_(rank / hierarchy.ranks_in_group),
      place_(rank % hierarchy.ranks_in_group),
      pool_(std::move(pool)),
      hierarchy_(hierarchy),
      way_(way) {
  SL_CHECK(hierarchy.fits(size) && num_groups_ > 1 && num_places_ > 1,
           "groups of " + std::to_string(num_places_) + " of " + std::to_string(size) + " ranks");
}

int HierarchicalSteps::group_at(int distance) const {
  return (group_ + distance + num_groups_) % num_groups_;
}

Slice HierarchicalSteps::slice(const Tensor& data, int group, int place) const {
  return slice_of(data.num_elements(), rank_at(group, place), size_);
}

Moves HierarchicalSteps::all_reduce(const Tensor& data, SumOrder order) const {
  Moves moves;
  add_reduction(data, order, moves);
  add_gather(data, moves);
  return moves;
}

Moves HierarchicalSteps::reduce_scatter(const Tensor& data, SumOrder order) const {
  Moves moves;
  add_reduction(data, order, moves);
  return moves;
}

Moves HierarchicalSteps::all_gather(const Tensor& data) const {
  Moves moves;
  add_gather(data, moves);
  return moves;
}

void HierarchicalSteps::add_reduction(const Tensor& data, SumOrder order, Moves& moves) const {
  check_sum(data, order, size_);
  const Reduction sum = reduction_of(data, order, moves);
  if (overlaps()) {
    for (int k = 0; k < num_groups_; ++k) {
      Step& step = moves.steps.emplace_back();
      if (k > 0) {
        exchange_sums(sum, k, step);
      }
      reduce_inside(sum, group_at(k + 1), sum.from_ranks, step);
    }
  } else {
    Step& inside = moves.steps.emplace_back();
    std::byte* landing = sum.from_ranks;
    for (int group = 0; group < num_groups_; ++group) {
      landing = reduce_inside(sum, group, landing, inside);
    }
    Step& between = moves.steps.emplace_back();
    for (int k = 1; k < num_groups_; ++k) {
      exchange_sums(sum, k, between);
    }
  }
  add_groups(sum, moves.steps.back());
}

HierarchicalSteps::Reduction HierarchicalSteps::reduction_of(const Tensor& data,
                                                             SumOrder order,
                                                             Moves& moves) const {
  const HierarchicalScratch scratch =
      hierarchical_scratch_of({.kind = Kind::reduce_scatter,
                               .elements = data.num_elements(),
                               .element_size = size_of(data.dtype()),
                               .order = order,
                               .hierarchy = hierarchy_},
                              way_,
                              rank_at(group_, place_),
                              size_);
  Reduction sum{.data = data, .order = order, .sum_dtype = data.dtype()};
  moves.scratch = pool_->take(scratch.total());
  sum.from_groups = moves.scratch.data();
  sum.from_ranks = sum.from_groups + scratch.from_groups + scratch.group_sums;
  if (data.dtype() == DType::bf16) {
    sum.sum_dtype = DType::f32;
    sum.group_sums = sum.from_groups + scratch.from_groups;
  }
  return sum;
}

std::byte* HierarchicalSteps::group_sum(const Reduction& sum, int group) const {
  if (sum.group_sums == nullptr) {
    return byte_of(sum.data, slice(sum.data, group, place_).begin);
  }
  std::byte* place = sum.group_sums;  // of one at a time, which has gone when the next one is made
  for (int before = 0; before < group && !overlaps(); ++before) {
    place += bytes_of(slice(sum.data, before, place_), sum.sum_dtype);
  }
  return place;
}

std::byte* HierarchicalSteps::reduce_inside(const Reduction& sum,
                                            int group,
                                            std::byte* landing,
                                            Step& step) const {
  const Slice own = slice(sum.data, group, place_);
  OrderedSum added{.dtype = sum.data.dtype(),
                   .output_dtype = sum.sum_dtype,
                   .order = sum.order,
                   .output = group_sum(sum, group),
                   .elements = own.count()};
  for (int place = 0; place < num_places_; ++place) {
    if (place == place_) {
      added.inputs.push_back(byte_of(sum.data, own.begin));
      continue;
    }
    const std::size_t bytes = bytes_of(own, sum.data.dtype());
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
    step.add(
        send_piece(rank_at(group_, place), sum.data, slice(sum.data, group, place), Lane::first));
  }
  if (own.count() > 0) {
    step.sums.push_back(std::move(added));
  }
  return landing;
}

// The sums of the own slice stand in the order of groups, this one's left out.
void HierarchicalSteps::exchange_sums(const Reduction& sum, int distance, Step& step) const {
  const int to = group_at(distance);
  const int from = group_at(-distance);
  const std::size_t own = bytes_of(slice(sum.data, group_, place_), sum.sum_dtype);
  const auto row = static_cast<std::size_t>(from < group_ ? from : from - 1);
  step.add({.way = Message::Way::receive,
            .lane = Lane::first,
            .peer = rank_at(from, place_),
            .data = sum.from_groups + row * own,
            .bytes = own});
  step.add({.way = Message::Way::send,
            .lane = Lane::first,
            .peer = rank_at(to, place_),
            .data = group_sum(sum, to),
            .bytes = bytes_of(slice(sum.data, to, place_), sum.sum_dtype)});
}

void HierarchicalSteps::add_groups(const Reduction& sum, Step& step) const {
  const Slice own = slice(sum.data, group_, place_);
  if (own.count() == 0) {
    return;
  }
  OrderedSum added{.dtype = sum.sum_dtype,
                   .output_dtype = sum.data.dtype(),
                   .output = byte_of(sum.data, own.begin),
                   .elements = own.count()};
  const std::byte* next = sum.from_groups;
  for (int group = 0; group < num_groups_; ++group) {
    if (group == group_) {
      added.inputs.push_back(group_sum(sum, group));
      continue;
    }
    added.inputs.push_back(next);
    next += bytes_of(own, sum.sum_dtype);
  }
  step.sums.push_back(std::move(added));
}

void HierarchicalSteps::add_gather(const Tensor& data, Moves& moves) const {
  if (overlaps()) {
    for (int k = 0; k < num_groups_; ++k) {
      Step& step = moves.steps.emplace_back();
      if (k + 1 < num_groups_) {
        exchange_slices(data, k + 1, step);
      }
      gather_inside(data, group_at(-k), step);
    }
    return;
  }
  Step& between = moves.steps.emplace_back();
  for (int k = 1; k < num_groups_; ++k) {
    exchange_slices(data, k, between);
  }
  Step& inside = moves.steps.emplace_back();
  for (int group = 0; group < num_groups_; ++group) {
    gather_inside(data, group, inside);
  }
}

void HierarchicalSteps::exchange_slices(const Tensor& data, int distance, Step& step) const {
  const int from = group_at(-distance);
  const int to = group_at(distance);
  step.add(receive_piece(rank_at(from, place_), data, slice(data, from, place_), Lane::second));
  step.add(send_piece(rank_at(to, place_), data, slice(data, group_, place_), Lane::second));
}

void HierarchicalSteps::gather_inside(const Tensor& data, int group, Step& step) const {
  for (int distance = 1; distance < num_places_; ++distance) {
    const int from = (place_ + num_places_ - distance) % num_places_;
    step.add(receive_piece(rank_at(group_, from), data, slice(data, group, from), Lane::second));
  }
  for (int distance = 1; distance < num_places_; ++distance) {
    const int to = (place_ + distance) % num_places_;
    step.add(send_piece(rank_at(group_, to), data, slice(data, group, place_), Lane::second));
  }
}

Moves moves_of(const Operation& collective,
               int rank,
               int size,
               const std::shared_ptr<ScratchPool>& pool,
               const Hierarchy& hierarchy) {
  const Tensor& data = collective.data;
  const SumOrder order = collective.order;
  const std::size_t bytes = std::max(data.bytes(), collective.note.whole_bytes);
  const Hierarchy::Way way = way_of({.kind = collective.kind,
                                     .elements = bytes,
                                     .element_size = 1,
                                     .order = order,
                                     .hierarchy = hierarchy},
                                    size);
  if (way != Hierarchy::Way::direct) {
    const HierarchicalSteps steps(rank, size, pool, hierarchy, way);
    return collective.kind == Kind::all_reduce       ? steps.all_reduce(data, order)
           : collective.kind == Kind::reduce_scatter ? steps.reduce_scatter(data, order)
                                                     : steps.all_gather(data);
  }
  const CollectiveSteps steps(rank, size, pool);
  switch (collective.kind) {
    case Kind::all_reduce:
      return steps.all_reduce(data, order, bytes);
    case Kind::reduce_scatter:
      return steps.reduce_scatter(data, order);
    case Kind::all_gather:
      return steps.all_gather(data);
    case Kind::all_to_all:
      return steps.all_to_all(data, collective.to);
    case Kind::broadcast:
      return steps.broadcast(data, collective.peer);
    case Kind::barrier:
      return steps.barrier();
    case Kind::send:
    case Kind::receive:
      break;
  }
  SL_CHECK(false, std::string(name_of(collective.kind)) + " is no collective");
}

}  // namespace slackline
