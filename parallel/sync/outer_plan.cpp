#include "parallel/sync/outer_plan.h"

#include <algorithm>
#include <cmath>

namespace slackline {

namespace {

// As large as a bucket of gradients, so that the engine's room for arriving slices is the same.
constexpr std::size_t kTransferElements = std::size_t{4} << 20U;

}  // namespace

std::vector<OuterShare> outer_shares(const std::vector<OptimizerPiece>& pieces) {
  std::vector<OuterShare> shares;
  std::size_t first = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const OptimizerPiece& piece = pieces[i];
    const Slice part = slice_of(piece.range.count(), piece.twin, piece.twins);
    if (part.count() == 0 || !piece.parameter->spec.trained) {
      continue;
    }
    shares.push_back({.piece = i,
                      .range = {piece.range.begin + part.begin, piece.range.begin + part.end},
                      .first = first,
                      .counted = !piece.is_copy});
    first += part.count();
  }
  return shares;
}

std::size_t elements_of(const std::vector<OuterShare>& shares) {
  return shares.empty() ? 0 : shares.back().first + shares.back().range.count();
}

std::vector<Slice> outer_transfers(std::size_t elements) {
  std::vector<Slice> transfers;
  for (std::size_t begin = 0; begin < elements; begin += kTransferElements) {
    transfers.push_back({begin, std::min(elements, begin + kTransferElements)});
  }
  return transfers;
}

std::int64_t chosen_period(double round_seconds, double step_seconds, std::int64_t in_force) {
  constexpr double kSpare = 1.1;
  constexpr double kTooLong = 1.5;
  const auto needed =
      std::max<std::int64_t>(1, std::llround(std::ceil(kSpare * round_seconds / step_seconds)));
  const bool stays =
      needed <= in_force && static_cast<double>(in_force) <= kTooLong * static_cast<double>(needed);
  return stays ? in_force : needed;
}

}  // namespace slackline
