#include <cmath>

#include "core/kernels/attention/attention_tiles.h"
#include "core/kernels/attention/fused_attention.h"

// Blocked as in FlashAttention, in fp32: for fp32 activations, and for dropout, whose bits are
// ours. A block for each tile of queries, over the tiles of keys up to it.
namespace slackline::cuda {

namespace {

constexpr int kTile = 64;       // rows of queries and of keys
constexpr int kSmallTile = 32;  // where a block has no room for those

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
    forward_kernel(AttentionJob job, const T* qkv, T* output, float* log_sum_exp) {
  constexpr int R = Tiles<tile>::R;
  constexpr int kStride = Tiles<tile>::kStride;
  const AttentionBlock<tile> block(job);
  const AttentionHead head(job, block.head);
  const int ty = static_cast<int>(threadIdx.y);
  const int tx = static_cast<int>(threadIdx.x);
  // The longest tiles first: a wave of blocks ends together.
  const int tile_index = block.index_from_end();
  const int first_query = tile_index * tile;
  float* const queries = dynamic_shared<float>();
  float* const keys = queries + tile * row_stride(job.D);
  float* const values = keys + tile * row_stride(job.D);
  float* const weights = values + tile * row_stride(job.D);
  bring<tile, Order::rows>(job, head.part(job, qkv, 0), job.row, first_query, queries);
  AttentionDropout dropout(job, head);
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

}  // namespace

template <typename T>
void attention_forward(StreamView stream, const AttentionForward& args) {
  if (fused_attention_forward(stream, args)) {
    return;
  }
  const AttentionJob job = job_of(args.qkv, args.num_heads, args.dropout, args.first_head);
  choose_groups(job, [&](auto groups) {
    const auto start = [&](auto tile) {
      constexpr int kRows = decltype(tile)::value;
      launch(stream,
             shape_of<kRows>(job, 3, 1),
             forward_kernel<kRows, groups(), T>,
             job,
             args.qkv.data<T>(),
             args.output.data<T>(),
             args.log_sum_exp.data<float>());
    };
    fits_block(shape_of<kTile>(job, 3, 1)) ? start(Constant<kTile>{})
                                           : start(Constant<kSmallTile>{});
  });
}

template void attention_forward<float>(StreamView, const AttentionForward&);
template void attention_forward<BFloat16>(StreamView, const AttentionForward&);

}  // namespace slackline::cuda
