#include <algorithm>
#include <cmath>

#include "core/cuda/device.h"
#include "core/cuda/launch.h"
#include "core/kernels/attention/attention.h"

// A block for each head of each sequence: keys and values are read once. Its warps take positions
// in turn, lanes the columns, with online softmax; what the warps have is put together at the end,
// in their order. Bound by memory.
namespace slackline::cuda {

namespace {

constexpr unsigned kWarps = 16;  // of a block
constexpr int kPositions = 4;    // that a warp takes at once
constexpr int kMostColumns = 8;  // of a lane

struct Heads {
  const float* query;
  const float* keys;
  const float* values;
  float* output;
  int num_heads;
  int D;
  std::int64_t capacity;
  int length;
  float scale;
};

// What a warp has of the output: sum of exp(score - most) values, and of exp(score - most).
template <int columns>
struct Partial {
  float most = -INFINITY;
  float total = 0.0F;
  Floats<columns> sums{};
};

// This lane's columns of a row of D.
template <int columns>
__device__ Floats<columns> load_columns(const float* row, int D) {
  Floats<columns> values;
#pragma unroll
  for (int i = 0; i < columns; ++i) {
    const int column = i * static_cast<int>(kWarp) + static_cast<int>(threadIdx.x);
    values[i] = column < D ? row[column] : 0.0F;
  }
  return values;
}

// Takes `count` positions, up to kPositions, whose keys and values begin here.
template <int columns>
__device__ void attend(const Heads& heads,
                       const Floats<columns>& query,
                       const float* keys,
                       const float* values,
                       int count,
                       Partial<columns>& partial) {
  const std::int64_t stride = std::int64_t{heads.num_heads} * heads.D;
  Floats<columns> rows[kPositions];
  float scores[kPositions];
#pragma unroll
  for (int k = 0; k < kPositions; ++k) {
    const std::int64_t at = std::min(k, count - 1) * stride;
    rows[k] = load_columns<columns>(values + at, heads.D);
    const Floats<columns> key = load_columns<columns>(keys + at, heads.D);
    scores[k] = 0.0F;
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      scores[k] = fmaf(query[i], key[i], scores[k]);
    }
  }
  float most = partial.most;
#pragma unroll
  for (int k = 0; k < kPositions; ++k) {
    const float score = heads.scale * warp_sum(scores[k]);
    scores[k] = k < count ? score : -INFINITY;
    most = fmaxf(most, scores[k]);
  }
  const float kept = expf(partial.most - most);
  partial.most = most;
  partial.total *= kept;
#pragma unroll
  for (int i = 0; i < columns; ++i) {
    partial.sums[i] *= kept;
  }
#pragma unroll
  for (int k = 0; k < kPositions; ++k) {
    const float weight = expf(scores[k] - most);
    partial.total += weight;
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      partial.sums[i] = fmaf(weight, rows[k][i], partial.sums[i]);
    }
  }
}

template <int columns>
__global__ void __launch_bounds__(kWarp* kWarps) decode_kernel(Heads heads) {
  const int D = heads.D;
  const std::int64_t row = blockIdx.x / static_cast<unsigned>(heads.num_heads);
  const std::int64_t head = blockIdx.x % static_cast<unsigned>(heads.num_heads);
  const std::int64_t C = std::int64_t{heads.num_heads} * D;
  const std::int64_t cached = row * heads.capacity * C + head * D;
  const Floats<columns> query = load_columns<columns>(heads.query + row * C + head * D, D);
  Partial<columns> partial;
  for (int first = static_cast<int>(threadIdx.y) * kPositions; first < heads.length;
       first += static_cast<int>(kWarps) * kPositions) {
    const int rest = heads.length - first;
    attend(heads,
           query,
           heads.keys + cached + first * C,
           heads.values + cached + first * C,
           rest < kPositions ? rest : kPositions,
           partial);
  }
  // `shared` holds for each warp: most, total, and D sums.
  float* const shared = dynamic_shared<float>();
  float* const own = shared + threadIdx.y * static_cast<unsigned>(D + 2);
  if (threadIdx.x == 0) {
    own[0] = partial.most;
    own[1] = partial.total;
  }
#pragma unroll
  for (int i = 0; i < columns; ++i) {
    const int column = i * static_cast<int>(kWarp) + static_cast<int>(threadIdx.x);
    if (column < D) {
      own[2 + column] = partial.sums[i];
    }
  }
  __syncthreads();
  float most = shared[0];
  for (unsigned warp = 1; warp < kWarps; ++warp) {
    most = fmaxf(most, shared[warp * static_cast<unsigned>(D + 2)]);
  }
  for (int column = static_cast<int>(threadIdx.y * kWarp + threadIdx.x); column < D;
       column += static_cast<int>(kWarp * kWarps)) {
    float total = 0.0F;
    float sum = 0.0F;
    for (unsigned warp = 0; warp < kWarps; ++warp) {
      const float* const other = shared + warp * static_cast<unsigned>(D + 2);
      const float kept = expf(other[0] - most);
      total = fmaf(kept, other[1], total);
      sum = fmaf(kept, other[2 + column], sum);
    }
    heads.output[row * C + head * D + column] = sum / total;
  }
}

// A block for each token: neighbouring threads copy neighbouring columns of its keys, then values.
__global__ void __launch_bounds__(kWarp* kWarps)
    cache_kernel(const float* qkv, float* keys, float* values, std::int64_t C) {
  const float* const row = qkv + (3 * std::int64_t{blockIdx.x} + 1) * C;
  const std::int64_t cached = blockIdx.x * C;
  for (std::int64_t column = threadIdx.x; column < 2 * C; column += kWarp * kWarps) {
    (column < C ? keys + cached : values + (cached - C))[column] = row[column];
  }
}

template <int columns>
void start(StreamView stream, unsigned num_blocks, const Heads& heads) {
  const LaunchShape shape{
      .grid = num_blocks,
      .block = dim3(kWarp, kWarps),
      .shared_bytes = kWarps * static_cast<std::size_t>(heads.D + 2) * sizeof(float),
  };
  launch(stream, shape, decode_kernel<columns>, heads);
}

}  // namespace

void attention_decode(StreamView stream, const AttentionDecode& args) {
  const std::int64_t D = args.query.dim(1) / args.num_heads;
  const auto num_blocks = static_cast<unsigned>(args.query.dim(0) * args.num_heads);
  const Heads heads{
      .query = args.query.data<float>(),
      .keys = args.keys.data<float>(),
      .values = args.values.data<float>(),
      .output = args.output.data<float>(),
      .num_heads = args.num_heads,
      .D = static_cast<int>(D),
      .capacity = args.keys.dim(1),
      .length = static_cast<int>(args.length),
      .scale = 1.0F / std::sqrt(static_cast<float>(D)),
  };
  if (D <= kWarp) {
    start<1>(stream, num_blocks, heads);
  } else if (D <= 2 * kWarp) {
    start<2>(stream, num_blocks, heads);
  } else if (D <= 4 * kWarp) {
    start<4>(stream, num_blocks, heads);
  } else {
    SL_CHECK(D <= std::int64_t{kMostColumns} * kWarp,
             "attention_decode of heads of " + std::to_string(D) + " columns");
    start<kMostColumns>(stream, num_blocks, heads);
  }
}

void cache_keys_values(StreamView stream, const AttentionCache& args) {
  const std::int64_t C = args.keys.dim(1);
  const LaunchShape shape{
      .grid = static_cast<unsigned>(args.qkv.dim(0)),
      .block = kWarp * kWarps,
  };
  launch(stream,
         shape,
         cache_kernel,
         args.qkv.data<float>(),
         args.keys.data<float>() + args.first * C,
         args.values.data<float>() + args.first * C,
         C);
}

}  // namespace slackline::cuda
