#include "core/comm/collective_bytes.h"

namespace slackline {

namespace {

using Kind = TransferRecord::Kind;

std::size_t children_in_tree(int rank, int size, int root) {
  const int place = (rank + size - root) % size;
  std::size_t children = 0;
  for (int distance = 1; distance < size && (place & distance) == 0; distance <<= 1) {
    children += place + distance < size ? 1 : 0;
  }
  return children;
}

}  // namespace

bool exchanges_all(std::size_t bytes, int size) {
  return size == 2 || bytes <= kGatherBytes;
}

std::size_t bytes_sent_by(const CollectiveCall& call, int rank, int size) {
  if (size == 1) {
    return 0;
  }
  const std::size_t all = call.elements * call.element_size;
  const std::size_t own = slice_of(call.elements, rank, size).count() * call.element_size;
  const auto others = static_cast<std::size_t>(size - 1);
  switch (call.kind) {
    case Kind::send:
      return all;
    case Kind::receive:
    case Kind::barrier:
      return 0;
    case Kind::all_reduce:
      return exchanges_all(all, size) ? others * all : all - own + others * own;
    case Kind::reduce_scatter:
    case Kind::all_to_all:
      return all - own;
    case Kind::all_gather:
      return others * own;
    case Kind::broadcast:
      if (all <= kTreeBytes) {
        return all * children_in_tree(rank, size, call.root);
      }
      return rank == call.root ? all - own + others * own : (others - 1) * own;
  }
  return 0;
}

std::size_t scratch_bytes_of(const CollectiveCall& call, int rank, int size) {
  if (call.kind != Kind::all_reduce && call.kind != Kind::reduce_scatter) {
    return 0;
  }
  const std::size_t all = call.elements * call.element_size;
  const std::size_t own = slice_of(call.elements, rank, size).count() * call.element_size;
  const bool gathers = call.kind == Kind::all_reduce && exchanges_all(all, size);
  return static_cast<std::size_t>(size - 1) * (gathers ? all : own);
}

}  // namespace slackline
