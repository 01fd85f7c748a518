#include "core/comm/engine/ordered_sum.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace slackline {

namespace {

// Elements summed at a time: the running sums stay in the first cache while the inputs stream by.
constexpr std::size_t kBlock = 1024;

template <typename T, typename Wide>
void load_sum(const T* a, const T* b, Wide* __restrict to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = static_cast<Wide>(a[i]) + static_cast<Wide>(b[i]);
  }
}

template <typename T, typename Wide>
void add(const T* from, Wide* __restrict to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] += static_cast<Wide>(from[i]);
  }
}

// A sum is nested runs: one of level 0 adds sizes_[0] inputs, one of level k adds sizes_[k] runs of
// level k - 1, each in order. The last level is the whole sum.
// Inputs are T, the output is Out; additions are of Wide.
template <typename T, typename Wide, typename Out>
class BlockSum {
 public:
  explicit BlockSum(const OrderedSum& sum) : sum_(sum) {
    std::size_t rest = sum.inputs.size();
    for (const int run : sum.order.runs) {
      add_level(static_cast<std::size_t>(run));
      rest /= static_cast<std::size_t>(run);
    }
    add_level(rest);
  }

  void run() {
    auto* output = reinterpret_cast<Out*>(sum_.output);
    for (std::size_t begin = 0; begin < sum_.elements; begin += kBlock) {
      const std::size_t count = std::min(kBlock, sum_.elements - begin);
      sum_run(num_levels_ - 1, 0, {begin, begin + count}, total_);
      for (std::size_t i = 0; i < count; ++i) {
        output[begin + i] = static_cast<Out>(total_[i]);
      }
    }
  }

 private:
  using Block = std::array<Wide, kBlock>;
  static constexpr std::size_t kMostLevels = std::tuple_size_v<decltype(SumOrder::runs)> + 1;

  // A run of one adds nothing.
  void add_level(std::size_t size) {
    if (size > 1) {
      sizes_[num_levels_++] = size;
    }
  }

  [[nodiscard]] const T* input(std::size_t rank, std::size_t begin) const {
    return reinterpret_cast<const T*>(sum_.inputs[rank]) + begin;
  }

  // Returns the number of inputs in a run of the levels below `level`.
  [[nodiscard]] std::size_t stride(std::size_t level) const {
    std::size_t inputs = 1;
    for (std::size_t below = 0; below < level; ++below) {
      inputs *= sizes_[below];
    }
    return inputs;
  }

  // Writes elements `part` of the run that begins with input `first` to the front of `to`.
  void sum_run(std::size_t level, std::size_t first, Slice part, Block& to) {
    const std::size_t count = part.count();
    if (level == 0) {
      load_sum(input(first, part.begin), input(first + 1, part.begin), to.data(), count);
      for (std::size_t rank = 2; rank < sizes_[0]; ++rank) {
        add(input(first + rank, part.begin), to.data(), count);
      }
      return;
    }
    sum_run(level - 1, first, part, to);
    Block& run = runs_[level - 1];
    for (std::size_t i = 1; i < sizes_[level]; ++i) {
      sum_run(level - 1, first + i * stride(level), part, run);
      add(run.data(), to.data(), count);
    }
  }

  const OrderedSum& sum_;
  std::array<std::size_t, kMostLevels> sizes_{};
  std::size_t num_levels_ = 0;
  Block total_;                              // written before it is read
  std::array<Block, kMostLevels - 1> runs_;  // likewise: a run's sum, by its level
};

}  // namespace

void OrderedSum::run() const {
  with_types_of(*this, [&](auto in, auto wide, auto out) {
    BlockSum<decltype(in), decltype(wide), decltype(out)>(*this).run();
  });
}

}  // namespace slackline
