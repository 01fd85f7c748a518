#include <cmath>
#include <numeric>
#include <vector>

#include "core/kernels/parallel_ranges.h"
#include "core/kernels/simd.h"
#include "core/kernels/update/adamw_coefficients.h"
#include "core/kernels/update/outer_coefficients.h"
#include "core/kernels/update/sum_of_squares.h"

// Floats widen to double before they are squared: no overflow, and the sum of a tensor's blocks
// is exact to 1e-13 whatever its size. A quarter of the vector units' rate still outruns memory.
namespace slackline::cpu {

namespace {

namespace hn = simd::hn;
using DoubleTag = hn::ScalableTag<double>;
using HalfTag = hn::Rebind<float, DoubleTag>;  // as many floats as one vector of doubles
using Doubles = hn::Vec<DoubleTag>;

constexpr DoubleTag kDoubles;
constexpr HalfTag kHalves;
constexpr std::size_t kWidth = hn::MaxLanes(kDoubles);
constexpr std::size_t kSums = 8;                  // independent, to hide the latency of the sum
constexpr std::size_t kPrefetchedElements = 512;  // 2 KiB ahead
constexpr std::size_t kElementsPerBlock = 65536;  // 256 KiB: long enough for the prefetchers

Doubles load_at(const float* values, std::size_t i) {
  hwy::Prefetch(values + i + kPrefetchedElements);  // a hint, harmless at the end
  return hn::PromoteTo(kDoubles, hn::LoadU(kHalves, values + i));
}

struct Square {
  Doubles add_to(Doubles sum, std::size_t i) const {
    const Doubles value = load_at(values, i);
    return hn::MulAdd(value, value, sum);
  }

  double of(std::size_t i) const { return static_cast<double>(values[i]) * values[i]; }

  const float* values;
};

struct IsAtLeast {
  Doubles add_to(Doubles sum, std::size_t i) const {
    const Doubles one = hn::Set(kDoubles, 1.0);
    const auto large = hn::Ge(hn::Abs(load_at(values, i)), hn::Set(kDoubles, limit));
    return hn::Add(sum, hn::IfThenElseZero(large, one));
  }

  double of(std::size_t i) const { return std::abs(double{values[i]}) >= limit ? 1.0 : 0.0; }

  const float* values;
  double limit;
};

struct SquareOfDirection {
  Doubles add_to(Doubles sum, std::size_t i) const {
    const Doubles root = hn::Sqrt(load_at(v, i));
    const Doubles divisor =
        hn::MulAdd(root, hn::Set(kDoubles, c.root_scale), hn::Set(kDoubles, c.eps));
    const Doubles value = hn::Div(hn::Mul(load_at(m, i), hn::Set(kDoubles, c.scale)), divisor);
    return hn::MulAdd(value, value, sum);
  }

  double of(std::size_t i) const {
    const double value = m[i] * c.scale / (std::sqrt(double{v[i]}) * c.root_scale + c.eps);
    return value * value;
  }

  const float* m;
  const float* v;
  AdamwDirection c;
};

struct SquareOfChange {
  Doubles add_to(Doubles sum, std::size_t i) const {
    const auto all = [](float value) { return hn::Set(kDoubles, double{value}); };
    const Doubles learned = hn::Mul(all(c.scale), load_at(difference, i));
    const Doubles made =
        hn::Mul(all(c.shrink), hn::MulAdd(all(c.momentum), load_at(momentum, i), learned));
    const Doubles limit = all(c.clip);
    const Doubles limited =
        hn::IfThenElse(hn::Gt(hn::Abs(made), limit), hn::CopySign(limit, made), made);
    const Doubles value =
        hn::MulAdd(all(c.of_momentum), limited, hn::Mul(all(c.of_learned), learned));
    return hn::MulAdd(value, value, sum);
  }

  double of(std::size_t i) const {
    const double learned = double{c.scale} * difference[i];
    const double made = c.shrink * (double{c.momentum} * momentum[i] + learned);
    const double limited = std::abs(made) > c.clip ? std::copysign(double{c.clip}, made) : made;
    const double value = c.of_momentum * limited + c.of_learned * learned;
    return value * value;
  }

  const float* momentum;
  const float* difference;
  OuterChange c;
};

double sum_of_block(std::size_t begin, std::size_t end, const auto& summand) {
  Doubles sums[kSums];
  std::fill_n(sums, kSums, hn::Zero(kDoubles));
  std::size_t i = begin;
  for (; i + kSums * kWidth <= end; i += kSums * kWidth) {
    for (std::size_t k = 0; k < kSums; ++k) {
      sums[k] = summand.add_to(sums[k], i + k * kWidth);
    }
  }
  Doubles total = sums[0];
  for (std::size_t k = 1; k < kSums; ++k) {
    total = hn::Add(total, sums[k]);
  }
  double sum = hn::GetLane(hn::SumOfLanes(kDoubles, total));
  for (; i < end; ++i) {
    sum += summand.of(i);
  }
  return sum;
}

double sum_over(StreamView stream, std::size_t count, const auto& summand) {
  const std::size_t num_blocks = (count + kElementsPerBlock - 1) / kElementsPerBlock;
  std::vector<double> sums(num_blocks);
  parallel_ranges(stream, count, kElementsPerBlock, [&](std::size_t begin, std::size_t end) {
    sums[begin / kElementsPerBlock] = sum_of_block(begin, end, summand);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace

void sums_of_squares(StreamView stream, std::span<const Tensor> tensors, std::span<double> sums) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::span<const float> values = tensors[i].span<float>();
    sums[i] = sum_over(stream, values.size(), Square{.values = values.data()});
  }
}

void counts_at_least(StreamView stream,
                     std::span<const Tensor> tensors,
                     float limit,
                     std::span<double> counts) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::span<const float> values = tensors[i].span<float>();
    counts[i] = sum_over(stream, values.size(), IsAtLeast{values.data(), limit});
  }
}

void sums_of_squared_directions(StreamView stream,
                                std::span<const Moments> moments,
                                const AdamwStep& step,
                                std::span<double> sums) {
  const AdamwDirection direction(step);
  for (std::size_t i = 0; i < moments.size(); ++i) {
    const auto& [m, v] = moments[i];
    sums[i] = sum_over(
        stream, m.num_elements(), SquareOfDirection{m.data<float>(), v.data<float>(), direction});
  }
}

void sums_of_squared_changes(StreamView stream,
                             std::span<const OuterMemories> memories,
                             const OuterStep& step,
                             std::span<double> sums) {
  const OuterChange change(step);
  for (std::size_t i = 0; i < memories.size(); ++i) {
    const auto& [momentum, difference] = memories[i];
    sums[i] = sum_over(stream,
                       momentum.num_elements(),
                       SquareOfChange{momentum.data<float>(), difference.data<float>(), change});
  }
}

}  // namespace slackline::cpu
