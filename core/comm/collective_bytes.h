#pragma once

#include <cstddef>

#include "core/comm/communicator.h"
#include "core/comm/hierarchy.h"

namespace slackline {

// Payload bytes that one rank sends in one sum, gather or exchange: what Communicator::bytes_sent()
// grows by. For n ranks, S = elements * element_size bytes, own = bytes of slice_of(elements, rank,
// n):
//
//   all_reduce      (n - 1) S for S <= kGatherBytes and for n = 2, else (S - own) + (n - 1) own
//   reduce_scatter  S - own
//   all_gather      (n - 1) own
//   all_to_all      S - own
//
// Over all ranks an all_reduce in slices comes to 2 (n - 1) S. One rank sends nothing.
//
// A sum or gather that does not go directly (Hierarchy), be it sequential or overlapped, sends as
// follows. With g groups of m ranks, `place` the bytes of the slices that ranks at the same place
// own, own included:
//
//   reduce_scatter  inside the group S - place        between groups w (place - own)
//   all_gather      inside the group (m - 1) place    between groups (g - 1) own
//   all_reduce      both
//
// where w is 2 for bf16, whose groups' sums travel in fp32, and else 1.
struct CollectiveCall {
  TransferRecord::Kind kind = TransferRecord::Kind::all_reduce;
  std::size_t elements = 0;
  std::size_t element_size = 4;
  SumOrder order{};  // of a sum; with the hierarchy it says which way the call goes
  Hierarchy hierarchy{};
};

[[nodiscard]] std::size_t bytes_sent_by(const CollectiveCall& call, int rank, int size);

// Which way a call goes: by its bytes, where whole groups of the hierarchy can be told apart. One
// group, groups of one rank, sums whose order does not add whole groups first, and what is neither
// a sum nor a gather go directly.
[[nodiscard]] Hierarchy::Way way_of(const CollectiveCall& call, int size);

// The bytes of them that leave the rank's group.
[[nodiscard]] std::size_t bytes_sent_across_by(const CollectiveCall& call, int rank, int size);

// Bytes of an element of a group's sum, as it travels between groups.
[[nodiscard]] std::size_t group_sum_size(std::size_t element_size);

// Bytes an operation receives into beside its tensors, at most.
[[nodiscard]] std::size_t scratch_bytes_of(const CollectiveCall& call, int rank, int size);

// Whether an all-reduce is one exchange, in which everybody sends all to everybody and adds, in
// place of two: of slices, and of their sums. Two ranks send the same bytes either way.
[[nodiscard]] bool exchanges_all(std::size_t bytes, int size);

// Up to these sizes latency counts, above them bytes.
inline constexpr std::size_t kGatherBytes = std::size_t{4} << 10U;
inline constexpr std::size_t kTreeBytes = std::size_t{64} << 10U;

}  // namespace slackline
