#include "core/comm/collective_bytes.h"

#include <algorithm>
#include <string>

#include "core/check.h"

namespace slackline {

namespace {

using Kind = TransferRecord::Kind;
using Way = Hierarchy::Way;

bool sums(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce_scatter;
}

bool gathers(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::all_gather;
}

// The bytes of slices of a call, as one rank sees them.
struct Slices {
  std::size_t all = 0;
  std::size_t own = 0;
  std::size_t of_place = 0;  // of the ranks at its place in all groups
  std::size_t of_group = 0;  // of the ranks of its group
};

// Returns how many of the first `owners` ranks are at a place of groups of m.
std::size_t at_place(std::size_t owners, int place, int m) {
  const auto p = static_cast<std::size_t>(place);
  return owners > p ? (owners - p - 1) / static_cast<std::size_t>(m) + 1 : 0;
}

Slices slices_of(const CollectiveCall& call, int rank, int size) {
  const int m = call.hierarchy.ranks_in_group;
  const auto ranks = static_cast<std::size_t>(size);
  const std::size_t longer = call.elements % ranks;  // see slice_of
  const int first = rank / m * m;
  const int last = std::min(first + m, size) - 1;
  const std::size_t of_place =
      at_place(ranks, rank % m, m) * (call.elements / ranks) + at_place(longer, rank % m, m);
  const std::size_t of_group =
      slice_of(call.elements, last, size).end - slice_of(call.elements, first, size).begin;
  return {.all = call.elements * call.element_size,
          .own = slice_of(call.elements, rank, size).count() * call.element_size,
          .of_place = of_place * call.element_size,
          .of_group = of_group * call.element_size};
}

// Returns how many times an element's bytes a group's sum of it takes.
std::size_t widening(const CollectiveCall& call) {
  return group_sum_size(call.element_size) / call.element_size;
}

std::size_t direct_bytes_across(const CollectiveCall& call, int rank, int size) {
  const Slices bytes = slices_of(call, rank, size);
  const auto others = static_cast<std::size_t>(size - call.hierarchy.ranks_in_group);
  switch (call.kind) {
    case Kind::all_reduce:
      return exchanges_all(bytes.all, size) ? others * bytes.all
                                            : bytes.all - bytes.of_group + others * bytes.own;
    case Kind::reduce_scatter:
    case Kind::all_to_all:
      return bytes.all - bytes.of_group;
    case Kind::all_gather:
      return others * bytes.own;
    default:
      SL_CHECK(false, "the formulas know no " + std::string(name_of(call.kind)));
  }
}

std::size_t hierarchical_bytes_across(const CollectiveCall& call, int rank, int size) {
  const Slices bytes = slices_of(call, rank, size);
  const auto other_groups = static_cast<std::size_t>(call.hierarchy.num_groups(size) - 1);
  return (sums(call.kind) ? widening(call) * (bytes.of_place - bytes.own) : 0) +
         (gathers(call.kind) ? other_groups * bytes.own : 0);
}

std::size_t hierarchical_bytes_inside(const CollectiveCall& call, int rank, int size) {
  const Slices bytes = slices_of(call, rank, size);
  const auto others = static_cast<std::size_t>(call.hierarchy.ranks_in_group - 1);
  return (sums(call.kind) ? bytes.all - bytes.of_place : 0) +
         (gathers(call.kind) ? others * bytes.of_place : 0);
}

// Returns the bytes of what a sum receives and keeps beside its tensor: the other groups' sums of
// the rank's slice; of bf16, sums of the own group; the other ranks' slices. Overlapped, the latter
// two are of one block at a time.
std::size_t hierarchical_scratch(const CollectiveCall& call, Way way, int rank, int size) {
  const int m = call.hierarchy.ranks_in_group;
  const Slices bytes = slices_of(call, rank, size);
  // No slice of a place is larger than the first group's.
  const std::size_t at_once =
      way == Way::sequential ? bytes.of_place
                             : slice_of(call.elements, rank % m, size).count() * call.element_size;
  const auto other_groups = static_cast<std::size_t>(call.hierarchy.num_groups(size) - 1);
  const std::size_t from_groups = other_groups * widening(call) * bytes.own;
  const std::size_t group_sums = widening(call) > 1 ? widening(call) * at_once : 0;
  return from_groups + group_sums + static_cast<std::size_t>(m - 1) * at_once;
}

}  // namespace

// bf16 is summed in fp32, and rounded once.
std::size_t group_sum_size(std::size_t element_size) {
  return element_size == size_of(DType::bf16) ? size_of(DType::f32) : element_size;
}

bool exchanges_all(std::size_t bytes, int size) {
  return size == 2 || bytes <= kGatherBytes;
}

Way way_of(const CollectiveCall& call, int size) {
  const Hierarchy& hierarchy = call.hierarchy;
  const int m = hierarchy.ranks_in_group;
  const bool adds_groups = call.order.runs[0] * call.order.runs[1] == m;
  const bool has_ways = sums(call.kind) ? adds_groups : call.kind == Kind::all_gather;
  if (m == 1 || m == size || !has_ways) {
    return Way::direct;
  }
  const std::size_t bytes = call.elements * call.element_size;
  if (hierarchy.overlapped_from != Hierarchy::kNever && bytes >= hierarchy.overlapped_from) {
    return Way::overlapped;
  }
  return hierarchy.sequential_from != Hierarchy::kNever && bytes >= hierarchy.sequential_from
             ? Way::sequential
             : Way::direct;
}

std::size_t bytes_sent_by(const CollectiveCall& call, int rank, int size) {
  if (size == 1) {
    return 0;
  }
  if (way_of(call, size) != Way::direct) {
    return hierarchical_bytes_inside(call, rank, size) +
           hierarchical_bytes_across(call, rank, size);
  }
  CollectiveCall alone = call;  // each rank in a group of its own: all that it sends goes across
  alone.hierarchy.ranks_in_group = 1;
  return direct_bytes_across(alone, rank, size);
}

std::size_t bytes_sent_across_by(const CollectiveCall& call, int rank, int size) {
  return way_of(call, size) == Way::direct ? direct_bytes_across(call, rank, size)
                                           : hierarchical_bytes_across(call, rank, size);
}

std::size_t scratch_bytes_of(const CollectiveCall& call, int rank, int size) {
  if (!sums(call.kind)) {
    return 0;
  }
  if (const Way way = way_of(call, size); way != Way::direct) {
    return hierarchical_scratch(call, way, rank, size);
  }
  const Slices bytes = slices_of(call, rank, size);
  const bool exchanges = call.kind == Kind::all_reduce && exchanges_all(bytes.all, size);
  return static_cast<std::size_t>(size - 1) * (exchanges ? bytes.all : bytes.own);
}

}  // namespace slackline
