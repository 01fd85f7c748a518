#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slackline {

// Where something lives that all data ranks have in common.
enum class Extent {
  none,    // all of it on every data rank
  group,   // shared out over the data ranks of a group; every group has all of it
  global,  // shared out over all data ranks
};

// Where matrices and tables, their gradients and what the optimizer keeps of them live: a strategy
// of the data axis, as PaRO names them (arXiv 2310.06003, section 3). The optimizer's extent is no
// coarser than the other two, so that whoever updates an element has its weight and its gradient.
// Norms and biases, a thousandth of a model, and their gradients are on every data rank, whatever
// the strategy; of them the optimizer's state alone is shared out.
struct DataStrategy {
  Extent parameters = Extent::none;
  Extent gradients = Extent::none;
  Extent optimizer = Extent::none;

  static const DataStrategy replicate;  // NNN
  static const DataStrategy zero1;      // NNG
  static const DataStrategy zero2;      // NGG
  static const DataStrategy zero3;      // GGG

  // Whether data ranks update different elements.
  [[nodiscard]] bool shares_updates() const { return optimizer != Extent::none; }

  // Whether ranks hold a part of weights or gradients, which are whole only while a pass works on
  // them.
  [[nodiscard]] bool shares_passes() const {
    return parameters != Extent::none || gradients != Extent::none;
  }

  // Whether something is shared out in groups, so that what crosses between groups is a part.
  [[nodiscard]] bool has_groups() const {
    return parameters == Extent::group || gradients == Extent::group || optimizer == Extent::group;
  }

  // Whether it is more than a sum of each gradient over all data ranks and a gather of each weight.
  [[nodiscard]] bool has_steps() const { return shares_passes() || has_groups(); }

  // Whether a codec may sit on the sum of a tied table's gradients, on so many stages: where these
  // are added up at a step's end, and each of two stages has all of the table.
  [[nodiscard]] bool codes_table(int num_stages) const {
    return gradients != Extent::global && (num_stages == 1 || !has_steps());
  }

  friend bool operator==(const DataStrategy&, const DataStrategy&) = default;
};

inline constexpr DataStrategy DataStrategy::replicate{};
inline constexpr DataStrategy DataStrategy::zero1{.optimizer = Extent::global};
inline constexpr DataStrategy DataStrategy::zero2{.gradients = Extent::global,
                                                  .optimizer = Extent::global};
inline constexpr DataStrategy DataStrategy::zero3{
    .parameters = Extent::global, .gradients = Extent::global, .optimizer = Extent::global};

// The 14 that keep the rule, in the order of their letters.
[[nodiscard]] std::vector<DataStrategy> all_data_strategies();

// "NIG": parameters, gradients, optimizer; and by what the config calls it: "zero1", "NIG".
[[nodiscard]] std::string letters_of(const DataStrategy& strategy);
[[nodiscard]] std::string name_of(const DataStrategy& strategy);

// The three letters or the name, whether it keeps the rule or not; none where it is neither.
[[nodiscard]] std::optional<DataStrategy> data_strategy_named(std::string_view name);

// The same over the data ranks of one group alone, which are all that there are then.
[[nodiscard]] DataStrategy inside_group(const DataStrategy& strategy);

// The same with an optimizer as fine as the finer of the other two, where it was coarser.
[[nodiscard]] DataStrategy nearest_data_strategy(const DataStrategy& strategy);

}  // namespace slackline
