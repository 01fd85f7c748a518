#include <algorithm>

#include "core/kernels/attention/attention_tiles.h"
#include "core/kernels/attention/fused_attention.h"

// Deltas, sum of output d_output of each row; then a block for each tile of keys over the queries
// from it on, for d_key and d_value; then one for each tile of queries, for d_query. Each sum has
// one owner and one order.
namespace slackline::cuda {

namespace {

constexpr int kTile = 64;       // rows of queries and of keys
constexpr int kSmallTile = 32;  // where heads are wider than 128, or a block has no room

// A warp for each row of each head: delta = sum of output d_output.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(AttentionJob job, const T* output, const T* d_output, float* deltas) {
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

  __device__ Score(const AttentionJob& job,
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

// d_key and d_value of a tile of keys. One block at a time is named because the compiler spills to
// make room for a third, which shared memory has no room for.
template <int tile, int groups, typename T>
__global__ void __launch_bounds__(kThreads, 1)
    key_value_kernel(AttentionJob job, Backward<T> args) {
  constexpr int R = Tiles<tile>::R;
  constexpr int kStride = Tiles<tile>::kStride;
  const AttentionBlock<tile> block(job);
  const AttentionHead head(job, block.head);
  const int ty = static_cast<int>(threadIdx.y);
  const int tx = static_cast<int>(threadIdx.x);
  const int first_key = block.index * tile;
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
  AttentionDropout dropout(job, head);
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
__global__ void __launch_bounds__(kThreads) query_kernel(AttentionJob job, Backward<T> args) {
  constexpr int R = Tiles<tile>::R;
  constexpr int kStride = Tiles<tile>::kStride;
  const AttentionBlock<tile> block(job);
  const AttentionHead head(job, block.head);
  const int ty = static_cast<int>(threadIdx.y);
  const int tx = static_cast<int>(threadIdx.x);
  const int first_query = block.index_from_end() * tile;
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
  AttentionDropout dropout(job, head);
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

}  // namespace

template <typename T>
void attention_backward(StreamView stream, const AttentionBackward& args) {
  if (fused_attention_backward(stream, args)) {
    return;
  }
  const AttentionJob job = job_of(args.qkv, args.num_heads, args.dropout, args.first_head);
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
    const auto start = [&](auto tile) {
      constexpr int kRows = decltype(tile)::value;
      launch(
          stream, shape_of<kRows>(job, 4, 2), key_value_kernel<kRows, groups(), T>, job, backward);
      launch(stream, shape_of<kRows>(job, 4, 1), query_kernel<kRows, groups(), T>, job, backward);
    };
    if constexpr (groups() <= 2) {
      if (fits_block(shape_of<kTile>(job, 4, 2))) {
        return start(Constant<kTile>{});
      }
    }
    start(Constant<kSmallTile>{});
  });
}

std::size_t attention_workspace_bytes(const AttentionSize& size) {
  return std::max(Arena::aligned_bytes(DType::f32, {size.B, size.H, size.T}),
                  fused_attention_workspace_bytes(size));
}

template void attention_backward<float>(StreamView, const AttentionBackward&);
template void attention_backward<BFloat16>(StreamView, const AttentionBackward&);

}  // namespace slackline::cuda
