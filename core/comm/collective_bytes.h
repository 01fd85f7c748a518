#pragma once

#include <cstddef>

#include "core/comm/communicator.h"

namespace slackline {

// Payload bytes that one rank sends in one operation: what Communicator::bytes_sent() grows by. For
// n ranks, S = elements * element_size bytes, own = bytes of slice_of(elements, rank, n):
//
//   send            S                                 receive, barrier   0
//   all_reduce      (n - 1) S for S <= kGatherBytes and for n = 2, else (S - own) + (n - 1) own
//   reduce_scatter  S - own
//   all_gather      (n - 1) own
//   all_to_all      S - own
//   broadcast       S times the children in a binomial tree for S <= kTreeBytes, else
//                   (S - own) + (n - 1) own of the root, (n - 2) own of the others
//
// Over all ranks an all_reduce in slices comes to 2 (n - 1) S. One rank sends nothing.
struct CollectiveCall {
  TransferRecord::Kind kind = TransferRecord::Kind::send;
  std::size_t elements = 0;
  std::size_t element_size = 4;
  int root = 0;  // of a broadcast
};

[[nodiscard]] std::size_t bytes_sent_by(const CollectiveCall& call, int rank, int size);

// Bytes an operation receives into beside its tensors, at most.
[[nodiscard]] std::size_t scratch_bytes_of(const CollectiveCall& call, int rank, int size);

// Whether an all-reduce is one exchange, in which everybody sends all to everybody and adds, in
// place of two: of slices, and of their sums. Two ranks send the same bytes either way.
[[nodiscard]] bool exchanges_all(std::size_t bytes, int size);

// Up to these sizes latency counts, above them bytes.
inline constexpr std::size_t kGatherBytes = std::size_t{4} << 10U;
inline constexpr std::size_t kTreeBytes = std::size_t{64} << 10U;

}  // namespace slackline
