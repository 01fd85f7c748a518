#include "parallel/sync/outer_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace slackline {

std::vector<int> fragments_of(const std::vector<ParameterSpec>& table, int count) {
  const auto elements = [](const ParameterSpec& spec) {
    return spec.trained ? static_cast<double>(spec.shape.num_elements()) : 0.0;
  };
  double all = 0.0;
  for (const ParameterSpec& spec : table) {
    all += elements(spec);
  }
  std::vector<int> fragments;
  double before = 0.0;
  for (const ParameterSpec& spec : table) {
    const double middle = before + elements(spec) / 2.0;
    const int fragment = all > 0.0 ? static_cast<int>(middle / all * count) : 0;
    fragments.push_back(std::clamp(fragment, 0, count - 1));
    before += elements(spec);
  }
  return fragments;
}

std::vector<OuterShare> outer_shares(const std::vector<OptimizerPiece>& pieces,
                                     const std::vector<int>& fragments) {
  std::vector<OuterShare> shares;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const OptimizerPiece& piece = pieces[i];
    const Slice part = slice_of(piece.range, piece.twin, piece.twins);
    if (part.count() == 0 || !piece.parameter->spec.trained) {
      continue;
    }
    shares.push_back({.piece = i,
                      .range = part,
                      .counted = !piece.is_copy,
                      .fragment = fragments.empty() ? 0 : fragments[i]});
  }
  std::ranges::stable_sort(shares, {}, &OuterShare::fragment);
  std::size_t first = 0;
  for (OuterShare& share : shares) {
    share.first = first;
    first += share.range.count();
  }
  return shares;
}

std::size_t elements_of(const std::vector<OuterShare>& shares) {
  return shares.empty() ? 0 : shares.back().first + shares.back().range.count();
}

std::vector<Slice> outer_transfers(std::size_t elements) {
  std::vector<Slice> transfers;
  for (std::size_t begin = 0; begin < elements; begin += kRoundTransferElements) {
    transfers.push_back({begin, std::min(elements, begin + kRoundTransferElements)});
  }
  return transfers;
}

std::vector<OwnedTransfer> owned_transfers(const std::vector<OuterShare>& shares,
                                           int worker,
                                           int workers) {
  std::vector<OwnedTransfer> transfers;
  std::size_t first = 0;
  for (const Slice& elements : outer_transfers(elements_of(shares))) {
    const Slice own = slice_of(elements, worker, workers);
    OwnedTransfer transfer{.elements = elements, .own = own};
    for (const OuterShare& share : shares) {
      const std::size_t begin = std::max(own.begin, share.first);
      const std::size_t end = std::min(own.end, share.first + share.range.count());
      if (begin < end) {
        OuterShare part = share;
        part.range = {share.range.begin + (begin - share.first),
                      share.range.begin + (end - share.first)};
        part.first = first;
        first += part.range.count();
        transfer.shares.push_back(part);
      }
    }
    transfers.push_back(transfer);
  }
  return transfers;
}

std::vector<OuterShare> owned_shares(const std::vector<OuterShare>& shares,
                                     int worker,
                                     int workers) {
  std::vector<OuterShare> owned;
  for (const OwnedTransfer& transfer : owned_transfers(shares, worker, workers)) {
    owned.insert(owned.end(), transfer.shares.begin(), transfer.shares.end());
  }
  return owned;
}

std::vector<int> due_fragments(std::int64_t step, std::int64_t every, int fragments, bool last) {
  if (!last) {
    return {static_cast<int>(step / every % fragments)};
  }
  std::vector<int> all(static_cast<std::size_t>(fragments));
  std::iota(all.begin(), all.end(), 0);
  return all;
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
