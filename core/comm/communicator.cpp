#include "core/comm/communicator.h"

#include <algorithm>

namespace slackline {

Slice slice_of(std::size_t n, int rank, int size) {
  const auto r = static_cast<std::size_t>(rank);
  const auto ranks = static_cast<std::size_t>(size);
  const std::size_t each = n / ranks;
  const std::size_t longer = n % ranks;  // the first `longer` ranks have one element more
  const std::size_t begin = r * each + std::min(r, longer);
  return {begin, begin + each + (r < longer ? 1 : 0)};
}

Slice slice_of(const Slice& range, int rank, int size) {
  const Slice within = slice_of(range.count(), rank, size);
  return {range.begin + within.begin, range.begin + within.end};
}

Tensor part_of(const Tensor& tensor, const Slice& slice) {
  const auto elements = static_cast<std::int64_t>(tensor.num_elements());
  return tensor.reshaped({elements})
      .rows(static_cast<std::int64_t>(slice.begin), static_cast<std::int64_t>(slice.end));
}

const char* name_of(TransferRecord::Kind kind) {
  using Kind = TransferRecord::Kind;
  constexpr std::array kNames = {"send",
                                 "receive",
                                 "all_reduce",
                                 "reduce_scatter",
                                 "all_gather",
                                 "all_to_all",
                                 "broadcast",
                                 "barrier"};  // in the order of Kind
  static_assert(kNames.size() == static_cast<std::size_t>(Kind::barrier) + 1);
  return kNames.at(static_cast<std::size_t>(kind));
}

}  // namespace slackline
