#include <algorithm>
#include <cmath>

#include "core/cuda/device.h"
#include "core/cuda/launch.h"
#include "core/kernels/attention.h"

// Blocked as in FlashAttention, in fp32: for fp32 activations, and for dropout, whose bits are
// ours.
//
// A block of 16 x 16 threads makes a tile of scores at a time, tile x tile of them; a thread has
// R x R, of neighbouring rows and columns. Rows of queries, keys and values stand in shared memory
// with four floats between them, and rows that are a tile's columns are dealt out by 16, so that
// the lanes of a warp read different banks.
//
// Forward: a block for each tile of queries, over the tiles of keys up to it. Backward: deltas,
// sum of output d_output of each row; then a block for each tile of keys over the queries from it
// on, for d_key and d_value; then one for each tile of queries, for d_query. Each sum has one owner
// and one order.
namespace slackline::cuda {

namespace {

constexpr int kSide = 16;  // of a block's square of threads
constexpr int kThreads = kSide * kSide;
constexpr int kGap = 4;  // floats between rows
constexpr int kPack = 4;

// What all kernels know. T rows of a head, D columns each.
struct Job {
  std::int64_t B = 0;
  int T = 0;
  int H = 0;
  int D = 0;
  std::int64_t row = 0;  // elements from one position to the next, in qkv
  float scale = 1.0F;
  DropoutKey dropout{};
  std::uint32_t threshold = 0;
  float kept = 1.0F;  // 1 / (1 - probability)
  std::int64_t first_head = 0;
};

// One head of one sequence, of which this block makes a part.
struct Head {
  int h = 0;
  std::int64_t b = 0;

  __device__ explicit Head(const Job& job)
      : h(static_cast<int>(blockIdx.y) % job.H), b(blockIdx.y / static_cast<unsigned>(job.H)) {}

  // Part 0, 1 or 2 of (B, T, 3 H D): queries, keys or values.
  template <typename T>
  __device__ T* part(const Job& job, T* qkv, int which) const {
    return qkv + b * job.T * job.row + (static_cast<std::int64_t>(which) * job.H + h) * job.D;
  }

  // In (B, T, H D).
  template <typename T>
  __device__ T* of_output(const Job& job, T* output) const {
    return output + (b * job.T * job.H + h) * job.D;
  }

  // In (B, H, T).
  template <typename T>
  __device__ T* statistics(const Job& job, T* all) const {
    return all + (b * job.H + h) * job.T;
  }
};

template <int tile>
struct Tiles {
  static constexpr int R = tile / kSide;       // rows and columns of a thread
  static constexpr int kStride = tile + kGap;  // of a tile of scores

  // Where row r of a tile stands that is read by columns: thread tx has rows R tx .. R tx + R - 1.
  static __device__ int column_slot(int r) { return r % R * kSide + r / R; }
};

// Columns of a head, as they stand in shared memory: whole packs, and zero beyond D. An even number
// of packs beside the gap of one spreads rows over the banks.
__host__ __device__ constexpr int padded(int D) {
  return (D + 2 * kPack - 1) / (2 * kPack) * 2 * kPack;
}

__host__ __device__ constexpr int row_stride(int D) {
  return padded(D) + kGap;
}

enum class Order { rows, columns };

// Brings rows [first, first + tile) of a head to shared memory as floats; zero beyond T and D.
template <int tile, Order order, typename T>
__device__ void bring(const Job& job, const T* from, std::int64_t stride, int first, float* to) {
  const int columns = padded(job.D);
  const int lane = static_cast<int>(threadIdx.y) * kSide + static_cast<int>(threadIdx.x);
  for (int i = lane; i < tile * columns; i += kThreads) {
    const int r = i / columns;
    const int d = i % columns;
    const bool is_there = first + r < job.T && d < job.D;
    const int slot = order == Order::rows ? r : Tiles<tile>::column_slot(r);
    to[slot * row_stride(job.D) + d] =
        is_there ? to_float(from[static_cast<std::int64_t>(first + r) * stride + d]) : 0.0F;
  }
}

// sums[i][j] += row R ty + i of `rows` times row R tx + j of `columns`, over D.
template <int tile>
__device__ void multiply_rows(const Job& job,
                              const float* rows,
                              const float* columns,
                              float (&sums)[Tiles<tile>::R][Tiles<tile>::R]) {
  constexpr int R = Tiles<tile>::R;
  const int stride = row_stride(job.D);
  const float* const a = rows + static_cast<int>(threadIdx.y) * R * stride;
  const float* const b = columns + static_cast<int>(threadIdx.x) * stride;
  for (int d = 0; d < padded(job.D); d += kPack) {
    Floats<kPack> left[R];
    Floats<kPack> right[R];
#pragma unroll
    for (int i = 0; i < R; ++i) {
      left[i] = load<kPack>(a + i * stride + d);
      right[i] = load<kPack>(b + i * kSide * stride + d);
    }
#pragma unroll
    for (int i = 0; i < R; ++i) {
#pragma unroll
      for (int j = 0; j < R; ++j) {
#pragma unroll
        for (int k = 0; k < kPack; ++k) {
          sums[i][j] = fmaf(left[i][k], right[j][k], sums[i][j]);
        }
      }
    }
  }
}

// A thread's part of a tile x D result: rows R ty + i, columns 4 tx + 64 g.
template <int R, int groups>
struct Result {
  Floats<kPack> values[R][groups];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < R; ++i) {
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        values[i][g] = Floats<kPack>{};
      }
    }
  }

  __device__ void scale_row(int i, float factor) {
#pragma unroll
    for (int g = 0; g < groups; ++g) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        values[i][g][k] *= factor;
      }
    }
  }
};

__device__ inline int first_column(int group) {
  return kPack * (static_cast<int>(threadIdx.x) + kSide * group);
}

// result += weights (tile x tile, rows of this thread) times rows of `values`, which stand in order
// of the weights' columns.
template <int tile, int groups, Order order>
__device__ void add_weighted(const Job& job,
                             const float* weights,
                             const float* values,
                             Result<Tiles<tile>::R, groups>& result) {
  constexpr int R = Tiles<tile>::R;
  constexpr int kStride = Tiles<tile>::kStride;
  const int stride = row_stride(job.D);
  const float* const own = weights + static_cast<int>(threadIdx.y) * R * kStride;
  for (int first = 0; first < tile; first += kPack) {
    Floats<kPack> weight[R];
#pragma unroll
    for (int i = 0; i < R; ++i) {
      weight[i] = load<kPack>(own + i * kStride + first);
    }
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const int r = first + k;
      const int slot = order == Order::rows ? r : Tiles<tile>::column_slot(r);
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        const int column = first_column(g);
        if (column < padded(job.D)) {
          const Floats<kPack> row = load<kPack>(values + slot * stride + column);
#pragma unroll
          for (int i = 0; i < R; ++i) {
#pragma unroll
            for (int c = 0; c < kPack; ++c) {
              result.values[i][g][c] = fmaf(weight[i][k], row[c], result.values[i][g][c]);
            }
          }
        }
      }
    }
  }
}

template <int tile, int groups, typename T>
__device__ void write_rows(const Job& job,
                           const Result<Tiles<tile>::R, groups>& result,
                           int first,
                           std::int64_t stride,
                           T* to) {
#pragma unroll
  for (int i = 0; i < Tiles<tile>::R; ++i) {
    const int row = first + static_cast<int>(threadIdx.y) * Tiles<tile>::R + i;
#pragma unroll
    for (int g = 0; g < groups; ++g) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        const int column = first_column(g) + k;
        if (row < job.T && column < job.D) {
          to[static_cast<std::int64_t>(row) * stride + column] =
              from_float<T>(result.values[i][g][k]);
        }
      }
    }
  }
}

// The factors by which dropout multiplies probabilities; words are drawn four elements at a time.
class DropoutFactors {
 public:
  __device__ DropoutFactors(const Job& job, const Head& head)
      : job_(&job),
        sample_(job.dropout.first_sample + static_cast<std::uint64_t>(head.b)),
        head_(static_cast<std::uint64_t>(job.first_head + head.h)) {}

  __device__ float of(int query, int key) {
    if (job_->threshold == 0) {
      return 1.0F;
    }
    const auto T = static_cast<std::uint64_t>(job_->T);
    const std::uint64_t element =
        (head_ * T + static_cast<std::uint64_t>(query)) * T + static_cast<std::uint64_t>(key);
    if (element / kWords != block_) {
      block_ = element / kWords;
      words_ = dropout_words(job_->dropout, sample_, block_);
    }
    return words_[element % kWords] < job_->threshold ? 0.0F : job_->kept;
  }

 private:
  static constexpr std::uint64_t kWords = 4;

  const Job* job_;
  std::uint64_t sample_;
  std::uint64_t head_;
  std::uint64_t block_ = ~std::uint64_t{0};
  PhiloxBlock words_{};
};

// Over the 16 threads that share rows.
__device__ inline float row_max(float value) {
  for (int lanes = kSide / 2; lanes > 0; lanes /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, lanes));
  }
  return value;
}

__device__ inline float row_sum(float value) {
  for (int lanes = kSide / 2; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, lanes);
  }
  return value;
}

template <int tile, int groups, typename T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Job job, const T* qkv, T* output, float* log_sum_exp) {
  constexpr int R = Tiles<tile>::R;
  constexpr int kStride = Tiles<tile>::kStride;
  const Head head(job);
  const int ty = static_cast<int>(threadIdx.y);
  const int tx = static_cast<int>(threadIdx.x);
  // The longest tiles first: a wave of blocks ends together.
  const int tile_index = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int first_query = tile_index * tile;
  float* const queries = dynamic_shared<float>();
  float* const keys = queries + tile * row_stride(job.D);
  float* const values = keys + tile * row_stride(job.D);
  float* const weights = values + tile * row_stride(job.D);
  bring<tile, Order::rows>(job, head.part(job, qkv, 0), job.row, first_query, queries);
  DropoutFactors dropout(job, head);
  Result<R, groups> result;
  result.clear();
  float most[R];
  float total[R];
#pragma unroll
  for (int i = 0; i < R; ++i) {
    most[i] = -INFINITY;
    total[i] = 0.0F;
  }
  for (int first_key = 0; first_key <= first_query; first_key += tile) {
    __syncthreads();
    bring<tile, Order::columns>(job, head.part(job, qkv, 1), job.row, first_key, keys);
    bring<tile, Order::rows>(job, head.part(job, qkv, 2), job.row, first_key, values);
    __syncthreads();
    float scores[R][R] = {};
    multiply_rows<tile>(job, queries, keys, scores);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int query = first_query + ty * R + i;
      float largest = most[i];
#pragma unroll
      for (int j = 0; j < R; ++j) {
        const int key = first_key + tx * R + j;
        scores[i][j] = key > query ? -INFINITY : scores[i][j] * job.scale;
        largest = fmaxf(largest, scores[i][j]);
      }
      largest = row_max(largest);
      // A query sees key 0, so that `largest` is a number from the first tile on.
      const float factor = expf(most[i] - largest);
      most[i] = largest;
      float sum = 0.0F;
#pragma unroll
      for (int j = 0; j < R; ++j) {
        const int key = first_key + tx * R + j;
        const float weight = expf(scores[i][j] - largest);
        sum += weight;
        weights[(ty * R + i) * kStride + tx * R + j] = weight * dropout.of(query, key);
      }
      total[i] = total[i] * factor + row_sum(sum);
      result.scale_row(i, factor);
    }
    __syncthreads();
    add_weighted<tile, groups, Order::rows>(job, weights, values, result);
  }
#pragma unroll
  for (int i = 0; i < R; ++i) {
    result.scale_row(i, 1.0F / total[i]);
    const int query = first_query + ty * R + i;
    if (tx == 0 && query < job.T) {
      head.statistics(job, log_sum_exp)[query] = most[i] + logf(total[i]);
    }
  }
  write_rows<tile, groups>(job,
                           result,
                           first_query,
                           static_cast<std::int64_t>(job.H) * job.D,
                           head.of_output(job, output));
}

// A warp for each row of each head: delta = sum of output d_output.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(Job job, const T* output, const T* d_output, float* deltas) {
  const std::int64_t index =
      std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;  // (b, t, h)
  if (index >= job.B * job.T * job.H) {
    return;
  }
  float sum = 0.0F;
  for (int d = static_cast<int>(threadIdx.x % kWarp); d < job.D; d += static_cast<int>(kWarp)) {
    sum = fmaf(to_float(output[index * job.D + d]), to_float(d_output[index * job.D + d]), sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) {
    const std::int64_t h = index % job.H;
    const std::int64_t t = index / job.H % job.T;
    const std::int64_t b = index / job.H / job.T;
    deltas[(b * job.H + h) * job.T + t] = sum;
  }
}

template <typename T>
struct Backward {
  const T* qkv = nullptr;
  const T* d_output = nullptr;
  const float* log_sum_exp = nullptr;
  const float* deltas = nullptr;
  T* d_qkv = nullptr;
};

// Probability and gradient of one score. `product` is d_output times the key's value.
struct Score {
  float dropped = 0.0F;   // probability after dropout
  float gradient = 0.0F;  // of the scaled product of query and key, times the scale

  __device__ Score(const Job& job,
                   float product_of_query_and_key,
                   float product,
                   float factor,
                   float log_sum_exp,
                   float delta) {
    const float probability = expf(product_of_query_and_key * job.scale - log_sum_exp);
    dropped = probability * factor;
    gradient = probability * (product * factor - delta) * job.scale;
  }
};

// d_key and d_value of a tile of keys.
template <int tile, int groups, typename T>
__global__ void __launch_bounds__(kThreads) key_value_kernel(Job job, Backward<T> args) {
  constexpr int R = Tiles<tile>::R;
  constexpr int kStride = Tiles<tile>::kStride;
  const Head head(job);
  const int ty = static_cast<int>(threadIdx.y);
  const int tx = static_cast<int>(threadIdx.x);
  const int first_key = static_cast<int>(blockIdx.x) * tile;
  const int size = tile * row_stride(job.D);
  float* const keys = dynamic_shared<float>();
  float* const values = keys + size;
  float* const queries = values + size;
  float* const d_outputs = queries + size;
  float* const weights = d_outputs + size;  // by key, then query
  float* const gradients = weights + tile * kStride;
  const std::int64_t output_stride = static_cast<std::int64_t>(job.H) * job.D;
  bring<tile, Order::rows>(job, head.part(job, args.qkv, 1), job.row, first_key, keys);
  bring<tile, Order::rows>(job, head.part(job, args.qkv, 2), job.row, first_key, values);
  DropoutFactors dropout(job, head);
  Result<R, groups> d_key;
  Result<R, groups> d_value;
  d_key.clear();
  d_value.clear();
  for (int first_query = first_key; first_query < job.T; first_query += tile) {
    __syncthreads();
    bring<tile, Order::columns>(job, head.part(job, args.qkv, 0), job.row, first_query, queries);
    bring<tile, Order::columns>(
        job, head.of_output(job, args.d_output), output_stride, first_query, d_outputs);
    __syncthreads();
    float scores[R][R] = {};
    float products[R][R] = {};
    multiply_rows<tile>(job, keys, queries, scores);
    multiply_rows<tile>(job, values, d_outputs, products);
#pragma unroll
    for (int j = 0; j < R; ++j) {
      const int query = first_query + tx * R + j;
      const bool is_there = query < job.T;
      const float sum = is_there ? head.statistics(job, args.log_sum_exp)[query] : 0.0F;
      const float delta = is_there ? head.statistics(job, args.deltas)[query] : 0.0F;
#pragma unroll
      for (int i = 0; i < R; ++i) {
        const int key = first_key + ty * R + i;
        const int at = (ty * R + i) * kStride + tx * R + j;
        if (is_there && key <= query) {
          const Score score(job, scores[i][j], products[i][j], dropout.of(query, key), sum, delta);
          weights[at] = score.dropped;
          gradients[at] = score.gradient;
        } else {
          weights[at] = 0.0F;
          gradients[at] = 0.0F;
        }
      }
    }
    __syncthreads();
    add_weighted<tile, groups, Order::columns>(job, weights, d_outputs, d_value);
    add_weighted<tile, groups, Order::columns>(job, gradients, queries, d_key);
  }
  write_rows<tile, groups>(job, d_key, first_key, job.row, head.part(job, args.d_qkv, 1));
  write_rows<tile, groups>(job, d_value, first_key, job.row, head.part(job, args.d_qkv, 2));
}

// d_query of a tile of queries.
template <int tile, int groups, typename T>
__global__ void __launch_bounds__(kThreads) query_kernel(Job job, Backward<T> args) {
  constexpr int R = Tiles<tile>::R;
  constexpr int kStride = Tiles<tile>::kStride;
  const Head head(job);
  const int ty = static_cast<int>(threadIdx.y);
  const int tx = static_cast<int>(threadIdx.x);
  const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * tile;
  const int size = tile * row_stride(job.D);
  float* const queries = dynamic_shared<float>();
  float* const d_outputs = queries + size;
  float* const keys = d_outputs + size;
  float* const values = keys + size;
  float* const gradients = values + size;
  const std::int64_t output_stride = static_cast<std::int64_t>(job.H) * job.D;
  bring<tile, Order::rows>(job, head.part(job, args.qkv, 0), job.row, first_query, queries);
  bring<tile, Order::rows>(
      job, head.of_output(job, args.d_output), output_stride, first_query, d_outputs);
  float sums[R];
  float deltas[R];
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const int query = first_query + ty * R + i;
    sums[i] = query < job.T ? head.statistics(job, args.log_sum_exp)[query] : 0.0F;
    deltas[i] = query < job.T ? head.statistics(job, args.deltas)[query] : 0.0F;
  }
  DropoutFactors dropout(job, head);
  Result<R, groups> d_query;
  d_query.clear();
  for (int first_key = 0; first_key <= first_query; first_key += tile) {
    __syncthreads();
    bring<tile, Order::columns>(job, head.part(job, args.qkv, 1), job.row, first_key, keys);
    bring<tile, Order::columns>(job, head.part(job, args.qkv, 2), job.row, first_key, values);
    __syncthreads();
    float scores[R][R] = {};
    float products[R][R] = {};
    multiply_rows<tile>(job, queries, keys, scores);
    multiply_rows<tile>(job, d_outputs, values, products);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int query = first_query + ty * R + i;
#pragma unroll
      for (int j = 0; j < R; ++j) {
        const int key = first_key + tx * R + j;
        float gradient = 0.0F;
        if (query < job.T && key <= query) {
          gradient =
              Score(job, scores[i][j], products[i][j], dropout.of(query, key), sums[i], deltas[i])
                  .gradient;
        }
        gradients[(ty * R + i) * kStride + tx * R + j] = gradient;
      }
    }
    __syncthreads();
    add_weighted<tile, groups, Order::columns>(job, gradients, keys, d_query);
  }
  write_rows<tile, groups>(job, d_query, first_query, job.row, head.part(job, args.d_qkv, 0));
}

Job job_of(const Tensor& qkv, int num_heads, const DropoutKey& dropout, std::int64_t first_head) {
  const std::int64_t D = qkv.dim(2) / (std::int64_t{3} * num_heads);
  return {
      .B = qkv.dim(0),
      .T = static_cast<int>(qkv.dim(1)),
      .H = num_heads,
      .D = static_cast<int>(D),
      .row = qkv.dim(2),
      .scale = 1.0F / std::sqrt(static_cast<float>(D)),
      .dropout = dropout,
      .threshold = dropout.probability > 0.0F ? dropout_threshold(dropout.probability) : 0,
      .kept = 1.0F / (1.0F - dropout.probability),
      .first_head = first_head,
  };
}

template <int tile>
LaunchShape shape_of(const Job& job, int row_tiles, int score_tiles) {
  const std::size_t floats =
      static_cast<std::size_t>(row_tiles) * tile * static_cast<std::size_t>(row_stride(job.D)) +
      static_cast<std::size_t>(score_tiles) * tile * Tiles<tile>::kStride;
  return {
      .grid = dim3(blocks_for(static_cast<std::size_t>(job.T), tile),
                   static_cast<unsigned>(job.B * job.H)),
      .block = dim3(kSide, kSide),
      .shared_bytes = floats * sizeof(float),
  };
}

template <int value>
using Constant = std::integral_constant<int, value>;

// Calls start(groups), of 64 columns each.
template <typename Start>
void choose_groups(const Job& job, const Start& start) {
  constexpr int kGroup = kSide * kPack;
  if (job.D <= kGroup) {
    start(Constant<1>{});
  } else if (job.D <= 2 * kGroup) {
    start(Constant<2>{});
  } else {
    SL_CHECK(job.D <= 4 * kGroup, "attention heads of " + std::to_string(job.D) + " columns");
    start(Constant<4>{});
  }
}

constexpr int kTile = 64;       // rows of queries and of keys
constexpr int kSmallTile = 32;  // of backward passes where heads are wider than 128

}  // namespace

template <typename T>
void attention_forward(StreamView stream, const AttentionForward& args) {
  const Job job = job_of(args.qkv, args.num_heads, args.dropout, args.first_head);
  choose_groups(job, [&](auto groups) {
    launch(stream,
           shape_of<kTile>(job, 3, 1),
           forward_kernel<kTile, groups(), T>,
           job,
           args.qkv.data<T>(),
           args.output.data<T>(),
           args.log_sum_exp.data<float>());
  });
}

template <typename T>
void attention_backward(StreamView stream, const AttentionBackward& args) {
  const Job job = job_of(args.qkv, args.num_heads, args.dropout, args.first_head);
  ArenaScope scratch(stream.workspace());
  const Tensor deltas = scratch.allocate(DType::f32, args.log_sum_exp.shape());
  const LaunchShape rows{
      .grid = blocks_for(deltas.num_elements(), kThreads / kWarp),
      .block = kThreads,
  };
  launch(stream,
         rows,
         delta_kernel<T>,
         job,
         args.output.data<T>(),
         args.d_output.data<T>(),
         deltas.data<float>());
  const Backward<T> backward{
      .qkv = args.qkv.data<T>(),
      .d_output = args.d_output.data<T>(),
      .log_sum_exp = args.log_sum_exp.data<float>(),
      .deltas = deltas.data<float>(),
      .d_qkv = args.d_qkv.data<T>(),
  };
  choose_groups(job, [&](auto groups) {
    constexpr int tile = groups() > 2 ? kSmallTile : kTile;
    launch(stream, shape_of<tile>(job, 4, 2), key_value_kernel<tile, groups(), T>, job, backward);
    launch(stream, shape_of<tile>(job, 4, 1), query_kernel<tile, groups(), T>, job, backward);
  });
}

std::size_t attention_workspace_bytes(const AttentionSize& size) {
  return Arena::aligned_bytes(DType::f32, {size.B, size.H, size.T});
}

template void attention_forward<float>(StreamView, const AttentionForward&);
template void attention_forward<BFloat16>(StreamView, const AttentionForward&);
template void attention_backward<float>(StreamView, const AttentionBackward&);
template void attention_backward<BFloat16>(StreamView, const AttentionBackward&);

}  // namespace slackline::cuda
