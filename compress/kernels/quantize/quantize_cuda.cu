#include <cmath>

#include "compress/kernels/quantize/code_widths.h"
#include "compress/kernels/quantize/quantize_scales.h"
#include "core/cuda/launch.h"
#include "core/rng.h"

// Scales first, then codes, a thread for each byte of them. Largest magnitudes are maxima of
// integers, the same in any order.
namespace slackline::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarp;
constexpr std::int64_t kRowsPerBlock = 64;             // of a maximum of columns
constexpr std::int64_t kElementsPerBlock = 64 * 1024;  // of a maximum of all

// What is quantized: x, or where there is a sum the sum with x added to it.
struct Source {
  const float* x;
  float* sum;  // null: none
  std::int64_t rows;
  std::int64_t columns;

  // Element `at`, once the sum is made.
  [[nodiscard]] __device__ float value(std::int64_t at) const {
    return sum == nullptr ? x[at] : sum[at];
  }

  // Makes the sum of an element.
  [[nodiscard]] __device__ float make(std::int64_t at) const {
    if (sum == nullptr) {
      return x[at];
    }
    const float total = sum[at] + x[at];
    sum[at] = total;
    return total;
  }
};

__device__ inline std::uint32_t warp_most(std::uint32_t value) {
  return __reduce_max_sync(kAllLanes, value);
}

__device__ inline std::uint32_t block_most(std::uint32_t value) {
  __shared__ std::uint32_t most[kWarps];
  value = warp_most(value);
  if (threadIdx.x % kWarp == 0) {
    most[threadIdx.x / kWarp] = value;
  }
  __syncthreads();
  for (const std::uint32_t other : most) {
    value = value < other ? other : value;
  }
  return value;
}

// A warp, or a whole block, for each row or group.
template <unsigned threads>
__global__ void __launch_bounds__(kThreads)
    group_scales_kernel(Source source, ScaleMap map, BFloat16* scales) {
  const std::int64_t index =
      (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / threads;  // of the group
  if (index >= source.rows * map.groups_per_row) {
    return;
  }
  const std::int64_t row = index / map.groups_per_row;
  const std::int64_t begin = index % map.groups_per_row * map.group;
  const std::int64_t end = begin + map.group < source.columns ? begin + map.group : source.columns;
  std::uint32_t largest = 0;
  for (std::int64_t column = begin + threadIdx.x % threads; column < end; column += threads) {
    const std::uint32_t own = magnitude(source.make(row * source.columns + column));
    largest = largest < own ? own : largest;
  }
  largest = threads == kWarp ? warp_most(largest) : block_most(largest);
  if (threadIdx.x % threads == 0) {
    scales[index] = scale_of(largest);
  }
}

// A thread for each column of some rows.
__global__ void __launch_bounds__(kThreads)
    column_maxima_kernel(Source source, std::uint32_t* maxima) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= source.columns) {
    return;
  }
  const std::int64_t begin = std::int64_t{blockIdx.y} * kRowsPerBlock;
  const std::int64_t end =
      begin + kRowsPerBlock < source.rows ? begin + kRowsPerBlock : source.rows;
  std::uint32_t largest = 0;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::uint32_t own = magnitude(source.make(row * source.columns + column));
    largest = largest < own ? own : largest;
  }
  atomicMax(&maxima[column], largest);
}

__global__ void __launch_bounds__(kThreads)
    whole_maximum_kernel(Source source, std::uint32_t* most) {
  const std::int64_t begin = std::int64_t{blockIdx.x} * kElementsPerBlock;
  const std::int64_t count = source.rows * source.columns;
  const std::int64_t end = begin + kElementsPerBlock < count ? begin + kElementsPerBlock : count;
  std::uint32_t largest = 0;
  for (std::int64_t at = begin + threadIdx.x; at < end; at += kThreads) {
    const std::uint32_t own = magnitude(source.make(at));
    largest = largest < own ? own : largest;
  }
  largest = block_most(largest);
  if (threadIdx.x == 0) {
    atomicMax(most, largest);
  }
}

__global__ void __launch_bounds__(kThreads)
    store_scales_kernel(const std::uint32_t* maxima, std::int64_t count, BFloat16* scales) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) {
    scales[i] = scale_of(maxima[i]);
  }
}

// A warp for each row.
__global__ void __launch_bounds__(kThreads) row_squares_kernel(Source source, double* of_rows) {
  const std::int64_t row = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  if (row >= source.rows) {
    return;
  }
  double sum = 0.0;
  for (std::int64_t column = threadIdx.x % kWarp; column < source.columns; column += kWarp) {
    const double value = source.make(row * source.columns + column);
    sum = fma(value, value, sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) {
    of_rows[row] = sum;
  }
}

// A block for a warp's columns, whose rows its warps take in turns. Of sums that are made.
__global__ void __launch_bounds__(kThreads)
    column_squares_kernel(Source source, double* of_columns) {
  __shared__ double sums[kWarps][kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp + lane;
  double sum = 0.0;
  if (column < source.columns) {
    for (std::int64_t row = warp; row < source.rows; row += kWarps) {
      const double value = source.value(row * source.columns + column);
      sum = fma(value, value, sum);
    }
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp == 0 && column < source.columns) {
    for (unsigned other = 1; other < kWarps; ++other) {
      sum += sums[other][lane];
    }
    of_columns[column] = sum;
  }
}

// One block.
__global__ void __launch_bounds__(kThreads)
    add_squares_kernel(const double* of_rows, std::int64_t rows, double* all) {
  __shared__ double sums[kThreads];
  double sum = 0.0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kThreads) {
    sum += of_rows[row];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned other = 1; other < kThreads; ++other) {
      sum += sums[other];
    }
    *all = sum;
  }
}

// A thread for each row, and behind them for each column.
__global__ void __launch_bounds__(kThreads) store_both_scales_kernel(BothScales of,
                                                                     const double* squares,
                                                                     std::int64_t rows,
                                                                     std::int64_t columns,
                                                                     BFloat16* scales) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const double all = squares[rows + columns];
  if (i < rows) {
    scales[i] = of.of_row(squares[i], all);
  } else if (i < rows + columns) {
    scales[i] = of.of_column(squares[i], all);
  }
}

struct RoundingOffsets {
  bool is_random;
  DropoutKey words;
  std::uint64_t sample;
  std::uint64_t first;  // element of the whole matrix that this one begins with

  // In (0, 1): of the 16 bits of an element.
  [[nodiscard]] __device__ float offset(std::uint64_t at) const {
    constexpr std::uint64_t kHalves = 8;  // of a block of words
    const std::uint64_t element = first + at;
    const PhiloxBlock block = dropout_words(words, sample, element / kHalves);
    const auto half = static_cast<std::uint32_t>(element % kHalves);
    const std::uint32_t bits = block[half / 2] >> (16 * (half % 2)) & 0xffffU;
    return fmaf(static_cast<float>(bits), 0x1p-16F, 0x1p-17F);
  }
};

// Added to a float of at most 2^22, the sum's last bits are the float rounded to nearest, ties to
// even.
constexpr float kRounder = 0x1.8p23F;

__device__ inline int integer(float plus_rounder) {
  return static_cast<int>(__float_as_uint(plus_rounder) - __float_as_uint(kRounder));
}

// A thread for each byte. Codes of 3 bits that reach into a neighbour are made for both.
template <int bits>
__global__ void __launch_bounds__(kThreads) pack_kernel(Source source,
                                                        ScaleMap map,
                                                        RoundingOffsets rounding,
                                                        float below,
                                                        std::int64_t row_bytes,
                                                        const BFloat16* scales,
                                                        std::uint8_t* packed) {
  constexpr bool kDivides = 8 % bits == 0;
  constexpr int kMost = kDivides ? 8 / bits : 8 / bits + 2;  // codes of a byte
  constexpr float kLevels = 1 << (bits - 1);
  constexpr int kLargest = (1 << bits) - 1;
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= source.rows * row_bytes) {
    return;
  }
  const std::int64_t row = index / row_bytes;
  const std::int64_t byte_bit = index % row_bytes * 8;
  const std::int64_t first = byte_bit / bits;
  const int bit = kDivides ? 0 : static_cast<int>(first * bits - byte_bit);  // at most 0
  unsigned byte = 0;
#pragma unroll
  for (int k = 0; k < kMost; ++k) {
    const std::int64_t column = first + k;
    int code = static_cast<int>(kLevels);  // zero's
    if (column < source.columns) {
      const std::int64_t at = row * source.columns + column;
      const float factor = map.factor(scales, row, column, kLevels);
      const float value = source.value(at);
      if (rounding.is_random) {
        const float drawn = rounding.offset(static_cast<std::uint64_t>(at)) - below;
        const float moved = fmaxf(fmaf(value, factor, drawn), -2.0F * kLevels);
        code = integer(floorf(moved) + (kRounder + kLevels));
      } else if (below > 0.0F) {
        // Far below the lowest level it would pass for a high one.
        const float position = fmaxf(fmaf(value, factor, -below), -2.0F * kLevels);
        code = integer(position + (kRounder + kLevels));
      } else {
        code = integer(fmaf(value, factor, kRounder + kLevels));
      }
      code = code < 0 ? 0 : code > kLargest ? kLargest : code;
    }
    // Shifted by a byte more and back, for the first may begin before this one.
    byte |= static_cast<unsigned>(code) << (8 + bit + bits * k) >> 8;
  }
  packed[index] = static_cast<std::uint8_t>(byte);
}

Source source_of(const Quantize& args) {
  return {.x = args.x.data<float>(),
          .sum = args.sum.empty() ? nullptr : args.sum.data<float>(),
          .rows = args.x.dim(0),
          .columns = args.x.dim(1)};
}

RoundingOffsets rounding_of(const Quantize& args) {
  if (!args.stochastic) {
    return {};
  }
  return {.is_random = true,
          .words = {.site = args.stochastic->stream, .step = args.stochastic->step},
          .sample = args.stochastic->message,
          .first = args.stochastic->first_element};
}

// Through maxima in scratch, which several blocks find.
template <typename Find>
void make_shared_scales(StreamView stream, const Tensor& scales, const Find& find) {
  ArenaScope scratch(stream.workspace());
  const Tensor maxima = scratch.allocate(DType::u32, scales.shape());
  SL_CUDA_CHECK(cudaMemsetAsync(maxima.raw(), 0, maxima.bytes(), stream.cuda().handle()));
  find(maxima.data<std::uint32_t>());
  launch(stream,
         {.grid = blocks_for(scales.num_elements(), kThreads), .block = kThreads},
         store_scales_kernel,
         maxima.data<std::uint32_t>(),
         static_cast<std::int64_t>(scales.num_elements()),
         scales.data<BFloat16>());
}

void make_group_scales(StreamView stream,
                       const Source& source,
                       const ScaleMap& map,
                       const Tensor& scales) {
  constexpr std::int64_t kMostOfWarp = 1024;  // elements
  const auto groups = static_cast<std::size_t>(source.rows * map.groups_per_row);
  const bool fit_warps = map.group <= kMostOfWarp;
  const auto kernel = fit_warps ? group_scales_kernel<kWarp> : group_scales_kernel<kThreads>;
  launch(stream,
         {.grid = blocks_for(groups, fit_warps ? kWarps : 1), .block = kThreads},
         kernel,
         source,
         map,
         scales.data<BFloat16>());
}

void make_both_scales(StreamView stream, const Source& source, double reach, const Tensor& scales) {
  ArenaScope scratch(stream.workspace());
  const std::int64_t num_scales = source.rows + source.columns;
  const Tensor sums = scratch.allocate(DType::f64, {num_scales + 1});
  auto* squares = sums.data<double>();
  if (source.rows > 0) {
    launch(stream,
           {.grid = blocks_for(static_cast<std::size_t>(source.rows), kWarps), .block = kThreads},
           row_squares_kernel,
           source,
           squares);
  }
  launch(stream,
         {.grid = blocks_for(static_cast<std::size_t>(source.columns), kWarp), .block = kThreads},
         column_squares_kernel,
         source,
         squares + source.rows);
  launch(stream,
         {.grid = 1, .block = kThreads},
         add_squares_kernel,
         static_cast<const double*>(squares),
         source.rows,
         squares + num_scales);
  launch(stream,
         {.grid = blocks_for(static_cast<std::size_t>(num_scales), kThreads), .block = kThreads},
         store_both_scales_kernel,
         BothScales{.reach = reach,
                    .rows = static_cast<double>(source.rows),
                    .columns = static_cast<double>(source.columns)},
         static_cast<const double*>(squares),
         source.rows,
         source.columns,
         scales.data<BFloat16>());
}

void make_scales(
    StreamView stream, const Source& source, const ScaleMap& map, int bits, const Tensor& scales) {
  const auto count = static_cast<std::size_t>(source.rows * source.columns);
  if (map.shared == ScaleOf::channel) {
    make_shared_scales(stream, scales, [&](std::uint32_t* maxima) {
      const dim3 grid(blocks_for(static_cast<std::size_t>(source.columns), kThreads),
                      blocks_for(static_cast<std::size_t>(source.rows), kRowsPerBlock));
      launch(stream, {.grid = grid, .block = kThreads}, column_maxima_kernel, source, maxima);
    });
  } else if (map.shared == ScaleOf::tensor) {
    make_shared_scales(stream, scales, [&](std::uint32_t* maxima) {
      launch(stream,
             {.grid = blocks_for(count, kElementsPerBlock), .block = kThreads},
             whole_maximum_kernel,
             source,
             maxima);
    });
  } else if (map.shared == ScaleOf::both) {
    make_both_scales(stream, source, normal_reach(bits), scales);
  } else {
    make_group_scales(stream, source, map, scales);
  }
}

}  // namespace

void quantize(StreamView stream, const Quantize& args) {
  const Source source = source_of(args);
  const auto& to = args.to;
  const ScaleMap map(to.format, source.rows, source.columns);
  make_scales(stream, source, map, to.format.bits, to.scales);
  const auto start = [&](auto kernel) {
    launch(stream,
           {.grid = blocks_for(to.packed.num_elements(), kThreads), .block = kThreads},
           kernel,
           source,
           map,
           rounding_of(args),
           to.format.offset(),
           to.packed.dim(1),
           to.scales.data<BFloat16>(),
           to.packed.data<std::uint8_t>());
  };
  with_code_width(to.format.bits, [&](auto bits) { start(pack_kernel<decltype(bits)::value>); });
}

std::size_t quantize_workspace_bytes(ScaleOf shared, std::int64_t rows, std::int64_t columns) {
  return shared == ScaleOf::channel  ? Arena::aligned_bytes(DType::u32, {columns})
         : shared == ScaleOf::both   ? Arena::aligned_bytes(DType::f64, {rows + columns + 1})
         : shared == ScaleOf::tensor ? Arena::aligned_bytes(DType::u32, {1})
                                     : 0;
}

}  // namespace slackline::cuda
