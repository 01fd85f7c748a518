#include "core/comm/engine/ordered_sum.h"

#include <algorithm>
#include <array>

#include "core/check.h"

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

template <typename T, typename Wide>
class BlockSum {
 public:
  explicit BlockSum(const OrderedSum& sum) : sum_(sum) {}

  void run() {
    auto* output = reinterpret_cast<T*>(sum_.output);
    for (std::size_t begin = 0; begin < sum_.elements; begin += kBlock) {
      const std::size_t count = std::min(kBlock, sum_.elements - begin);
      if (sum_.order == SumOrder::ranks) {
        sum_ranks(begin, count);
      } else {
        sum_pairs(begin, count);
      }
      for (std::size_t i = 0; i < count; ++i) {
        output[begin + i] = static_cast<T>(total_[i]);
      }
    }
  }

 private:
  [[nodiscard]] const T* input(std::size_t rank, std::size_t begin) const {
    return reinterpret_cast<const T*>(sum_.inputs[rank]) + begin;
  }

  void sum_ranks(std::size_t begin, std::size_t count) {
    load_sum(input(0, begin), input(1, begin), total_.data(), count);
    for (std::size_t rank = 2; rank < sum_.inputs.size(); ++rank) {
      add(input(rank, begin), total_.data(), count);
    }
  }

  void sum_pairs(std::size_t begin, std::size_t count) {
    load_sum(input(0, begin), input(1, begin), total_.data(), count);
    for (std::size_t rank = 2; rank < sum_.inputs.size(); rank += 2) {
      load_sum(input(rank, begin), input(rank + 1, begin), pair_.data(), count);
      add(pair_.data(), total_.data(), count);
    }
  }

  const OrderedSum& sum_;
  std::array<Wide, kBlock> total_;  // written before it is read
  std::array<Wide, kBlock> pair_;
};

}  // namespace

void OrderedSum::run() const {
  switch (dtype) {
    case DType::f32:
      return BlockSum<float, float>(*this).run();
    case DType::bf16:
      return BlockSum<BFloat16, float>(*this).run();
    case DType::f64:
      return BlockSum<double, double>(*this).run();
    default:
      SL_CHECK(false, "sums over ranks take f32, bf16 and f64; got " + std::string(name_of(dtype)));
  }
}

}  // namespace slackline
