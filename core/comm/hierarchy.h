#pragma once

#include <cstddef>
#include <limits>

namespace slackline {

// A hierarchy says that the ranks of a communicator stand in groups of equal size with fast links
// inside (a node, a switch): rank = group * ranks_in_group + place. It chooses the way that
// reduce_scatter, all_gather and all_reduce take.
//
// The ways (HO-Ring: arXiv 2310.06003, section 4; the phases are ours, after its description):
// a rank exchanges slices with the ranks of its own group and with the ranks at its own place in
// the others. A slice is first added inside each group, by the rank at the place of its owner, in
// the order of ranks; the owner adds the groups' sums in the order of groups. Gathers go the other
// way round. So m times fewer bytes cross between groups than directly, where m is
// ranks_in_group. With c bytes a slice, t_e the time of one slice between groups and t_i of one to
// each of the m - 1 others inside, a reduce_scatter or an all_gather over g groups takes
//   sequential  (g - 1) t_e + g t_i
//   overlapped  (g - 1) max(t_e, t_i) + t_i
//
// No way changes a bit of a result: a sum whose order does not add whole groups first goes
// directly.
struct Hierarchy {
  enum class Way {
    direct,      // every rank exchanges slices with every other one
    sequential,  // all slices inside the groups, then all between them; gathers the other way round
    overlapped,  // block by block: while one moves inside the groups, another one moves between
  };

  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

  int ranks_in_group = 1;
  // Bytes of the smallest tensors that go so; overlapped where both apply.
  std::size_t sequential_from = kNever;
  std::size_t overlapped_from = kNever;

  [[nodiscard]] int num_groups(int size) const { return size / ranks_in_group; }

  // True when every collective goes directly.
  [[nodiscard]] bool is_flat() const {
    return sequential_from == kNever && overlapped_from == kNever;
  }

  // Whether groups of this size cut `size` ranks without a rest.
  [[nodiscard]] bool fits(int size) const {
    return ranks_in_group >= 1 && size % ranks_in_group == 0;
  }

  friend bool operator==(const Hierarchy&, const Hierarchy&) = default;
};

}  // namespace slackline
