#include <numeric>
#include <vector>

#include "core/cuda/batch.h"
#include "core/cuda/cuda_memory.h"
#include "core/cuda/map.h"
#include "core/kernels/update/adamw_coefficients.h"
#include "core/kernels/update/outer_coefficients.h"
#include "core/kernels/update/sum_of_squares.h"

// Floats widen to double before they are squared: no overflow, and the rate of doubles still
// outruns memory. The values are read once; which thread adds what, and which block, follows from
// their number alone.
namespace slackline::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr int kPack = kPackSize<float>;
constexpr int kPacksAtOnce = 4;  // that a thread has on the way
constexpr std::size_t kElementsAtOnce = std::size_t{kThreads} * kPack * kPacksAtOnce;  // of a block
constexpr std::size_t kMostBlocks = 528;  // four for each multiprocessor of an H100

unsigned num_blocks(std::size_t count) {
  return static_cast<unsigned>(
      std::min(kMostBlocks, (count + kElementsAtOnce - 1) / kElementsAtOnce));
}

__device__ double block_total(double value) {
  __shared__ double sums[kThreads / kWarp];
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) {
    sums[threadIdx.x / kWarp] = value;
  }
  __syncthreads();
  double total = 0.0;
  for (const double sum : sums) {
    total += sum;
  }
  return total;
}

struct Item {
  const float* values;
  const float* others;  // of a summand of two; else null
  std::size_t count;
  double* sums;  // of blocks
};

struct Square {
  static constexpr bool kIsOfTwo = false;

  __device__ double add_to(double sum, double value, double /*other*/) const {
    return fma(value, value, sum);
  }
};

// Values behind the last one are read as 0, which is below any limit.
struct IsAtLeast {
  static constexpr bool kIsOfTwo = false;

  __device__ double add_to(double sum, double value, double /*other*/) const {
    return fabs(value) >= limit ? sum + 1.0 : sum;
  }

  double limit;
};

// Moments behind the last ones are read as 0, and so is their direction, for eps is not.
struct SquareOfDirection {
  static constexpr bool kIsOfTwo = true;

  __device__ double add_to(double sum, double m, double v) const {
    const double value = m * c.scale / (sqrt(v) * c.root_scale + c.eps);
    return fma(value, value, sum);
  }

  AdamwDirection c;
};

// A momentum and a difference behind the last ones are read as 0, which changes nothing.
struct SquareOfChange {
  static constexpr bool kIsOfTwo = true;

  __device__ double add_to(double sum, double momentum, double difference) const {
    const double learned = c.scale * difference;
    const double made = c.shrink * (c.momentum * momentum + learned);
    const double limited = fabs(made) > c.clip ? copysign(double{c.clip}, made) : made;
    const double value = c.of_momentum * limited + c.of_learned * learned;
    return fma(value, value, sum);
  }

  OuterChange c;
};

template <bool aligned>
__device__ Floats<kPack> pack_at(const float* values, std::size_t at, std::size_t count) {
  if (aligned && at + kPack <= count) {
    return load<kPack>(values + at);
  }
  const std::size_t rest = at < count ? count - at : 0;
  return load_part<kPack>(values + at, static_cast<int>(std::min<std::size_t>(rest, kPack)));
}

// sums[b] is of every num_blocks-th piece of kElementsAtOnce values from piece b on.
template <bool aligned, typename Summand>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const __grid_constant__ Batch<Item> batch, Summand summand) {
  const BatchPlace place(batch);
  const float* const values = batch.items[place.index].values;
  const float* const others = batch.items[place.index].others;
  const std::size_t count = batch.items[place.index].count;
  double own[kPack] = {};
  for (std::size_t piece = place.block * kElementsAtOnce; piece < count;
       piece += place.num_blocks * kElementsAtOnce) {
    Floats<kPack> packs[kPacksAtOnce];
    Floats<kPack> other_packs[kPacksAtOnce] = {};
#pragma unroll
    for (int p = 0; p < kPacksAtOnce; ++p) {
      const std::size_t at = piece + (p * kThreads + threadIdx.x) * std::size_t{kPack};
      packs[p] = pack_at<aligned>(values, at, count);
      if constexpr (Summand::kIsOfTwo) {
        other_packs[p] = pack_at<aligned>(others, at, count);
      }
    }
#pragma unroll
    for (int p = 0; p < kPacksAtOnce; ++p) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        own[i] = summand.add_to(own[i], packs[p][i], other_packs[p][i]);
      }
    }
  }
  const double total = block_total((own[0] + own[1]) + (own[2] + own[3]));
  if (threadIdx.x == 0) {
    batch.items[place.index].sums[place.block] = total;
  }
}

// `others` stand beside tensors where a summand is of two; else there are none.
template <typename Summand>
void sums_over(StreamView stream,
               std::span<const Tensor> tensors,
               std::span<const Tensor> others,
               const Summand& summand,
               std::span<double> totals) {
  ArenaScope scratch(stream.workspace());
  std::int64_t all_blocks = 0;
  for (const Tensor& tensor : tensors) {
    all_blocks += num_blocks(tensor.num_elements());
  }
  const Tensor sums = scratch.allocate(DType::f64, {all_blocks});
  std::vector<Item> aligned;
  std::vector<Item> unaligned;
  double* next = sums.data<double>();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Item item{.values = tensors[i].data<float>(),
                    .others = others.empty() ? nullptr : others[i].data<float>(),
                    .count = tensors[i].num_elements(),
                    .sums = next};
    (are_aligned(item.values, item.others) ? aligned : unaligned).push_back(item);
    next += num_blocks(item.count);
  }
  const auto start = [&](const std::vector<Item>& items, auto kernel) {
    const auto blocks_of = [](const Item& item) { return num_blocks(item.count); };
    for_each_batch(items, blocks_of, [&](const Batch<Item>& batch, unsigned blocks) {
      launch(stream, {.grid = blocks, .block = kThreads}, kernel, batch, summand);
    });
  };
  start(aligned, sum_kernel<true, Summand>);
  start(unaligned, sum_kernel<false, Summand>);
  std::vector<double> of_blocks(static_cast<std::size_t>(all_blocks));
  // A copy to memory that is not pinned holds up the process until the stream gets there; what the
  // stream waits for may need CUDA meanwhile.
  stream.synchronize();
  copy(stream.cuda().handle(), of_blocks.data(), sums.raw(), sums.bytes());
  stream.synchronize();
  auto sum = of_blocks.begin();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto end = sum + num_blocks(tensors[i].num_elements());
    totals[i] = std::accumulate(sum, end, 0.0);
    sum = end;
  }
}

}  // namespace

void sums_of_squares(StreamView stream, std::span<const Tensor> tensors, std::span<double> sums) {
  sums_over(stream, tensors, {}, Square{}, sums);
}

// REQUIRES: limit > 0.
void counts_at_least(StreamView stream,
                     std::span<const Tensor> tensors,
                     float limit,
                     std::span<double> counts) {
  sums_over(stream, tensors, {}, IsAtLeast{.limit = limit}, counts);
}

void sums_of_squared_directions(StreamView stream,
                                std::span<const Moments> moments,
                                const AdamwStep& step,
                                std::span<double> sums) {
  std::vector<Tensor> m;
  std::vector<Tensor> v;
  for (const Moments& of_tensor : moments) {
    m.push_back(of_tensor.m);
    v.push_back(of_tensor.v);
  }
  sums_over(stream, m, v, SquareOfDirection{.c = AdamwDirection(step)}, sums);
}

void sums_of_squared_changes(StreamView stream,
                             std::span<const OuterMemories> memories,
                             const OuterStep& step,
                             std::span<double> sums) {
  std::vector<Tensor> momentum;
  std::vector<Tensor> difference;
  for (const OuterMemories& of_tensor : memories) {
    momentum.push_back(of_tensor.momentum);
    difference.push_back(of_tensor.difference);
  }
  sums_over(stream, momentum, difference, SquareOfChange{.c = OuterChange(step)}, sums);
}

std::size_t sums_of_squares_workspace_bytes(std::span<const Tensor> tensors) {
  std::int64_t all_blocks = 0;
  for (const Tensor& tensor : tensors) {
    all_blocks += num_blocks(tensor.num_elements());
  }
  return Arena::aligned_bytes(DType::f64, {all_blocks});
}

}  // namespace slackline::cuda
