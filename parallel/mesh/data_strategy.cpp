#include "parallel/mesh/data_strategy.h"

#include <algorithm>
#include <array>
#include <utility>

namespace slackline {

namespace {

constexpr std::string_view kLetters = "NIG";

constexpr std::array<std::pair<std::string_view, DataStrategy>, 4> kNamed = {
    {{"replicate", DataStrategy::replicate},
     {"zero1", DataStrategy::zero1},
     {"zero2", DataStrategy::zero2},
     {"zero3", DataStrategy::zero3}}};

char letter_of(Extent extent) {
  return kLetters[static_cast<std::size_t>(extent)];
}

}  // namespace

std::vector<DataStrategy> all_data_strategies() {
  constexpr std::array<Extent, 3> kExtents = {Extent::none, Extent::group, Extent::global};
  std::vector<DataStrategy> all;
  for (const Extent parameters : kExtents) {
    for (const Extent gradients : kExtents) {
      for (const Extent optimizer : kExtents) {
        const DataStrategy strategy{parameters, gradients, optimizer};
        if (nearest_data_strategy(strategy) == strategy) {
          all.push_back(strategy);
        }
      }
    }
  }
  return all;
}

std::string letters_of(const DataStrategy& strategy) {
  return {
      letter_of(strategy.parameters), letter_of(strategy.gradients), letter_of(strategy.optimizer)};
}

std::string name_of(const DataStrategy& strategy) {
  const auto found =
      std::ranges::find(kNamed, strategy, &std::pair<std::string_view, DataStrategy>::second);
  return found == kNamed.end() ? letters_of(strategy) : std::string(found->first);
}

std::optional<DataStrategy> data_strategy_named(std::string_view name) {
  const auto found =
      std::ranges::find(kNamed, name, &std::pair<std::string_view, DataStrategy>::first);
  if (found != kNamed.end()) {
    return found->second;
  }
  if (name.size() != 3 || name.find_first_not_of(kLetters) != std::string_view::npos) {
    return std::nullopt;
  }
  const auto extent = [&](std::size_t place) {
    return static_cast<Extent>(kLetters.find(name[place]));
  };
  return DataStrategy{extent(0), extent(1), extent(2)};
}

DataStrategy inside_group(const DataStrategy& strategy) {
  const auto inside = [](Extent extent) {
    return extent == Extent::none ? Extent::none : Extent::global;
  };
  return {inside(strategy.parameters), inside(strategy.gradients), inside(strategy.optimizer)};
}

DataStrategy nearest_data_strategy(const DataStrategy& strategy) {
  return {strategy.parameters,
          strategy.gradients,
          std::max({strategy.parameters, strategy.gradients, strategy.optimizer})};
}

}  // namespace slackline
