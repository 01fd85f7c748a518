#include "core/cuda/map.h"
#include "core/kernels/embedding/embedding.h"
#include "core/kernels/embedding/table_rows.h"

// Lookups and positions: a warp for each row.
namespace slackline::cuda {

namespace {

// to = token + position by one warp, either of which may be null: zeros. token may be `to`.
template <int n, typename T>
__device__ void write_sum(const T* token, const T* position, T* to, std::int64_t C) {
  const T* const addend = token == nullptr ? nullptr : position;
  const T* const from = token == nullptr ? position : token;
  const auto num_packs = static_cast<std::size_t>(C / n);
#pragma unroll 4
  for (std::size_t pack = threadIdx.x; pack < num_packs; pack += kWarp) {
    Floats<n> sum = from == nullptr ? Floats<n>{} : load<n>(from + pack * n);
    if (addend != nullptr) {
      const Floats<n> other = load<n>(addend + pack * n);
#pragma unroll
      for (int i = 0; i < n; ++i) {
        sum[i] += other[i];
      }
    }
    store<n>(pack_at<n>(to, pack), sum);
  }
}

template <int n, typename T>
__global__ void __launch_bounds__(kWarp* kRowsPerBlock) lookup_kernel(const std::int32_t* tokens,
                                                                      std::int64_t num_tokens,
                                                                      std::int64_t num_positions,
                                                                      TableRows<const T> table,
                                                                      const T* positions,
                                                                      T* y,
                                                                      std::int64_t C) {
  const std::int64_t index = row_of_warp();
  if (index >= num_tokens) {
    return;
  }
  const std::int64_t row = table.row_of(tokens[index]);
  write_sum<n>(row < 0 ? nullptr : table.values + row * C,
               positions == nullptr ? nullptr : positions + index % num_positions * C,
               y + index * C,
               C);
}

template <int n, typename T>
__global__ void __launch_bounds__(kWarp* kRowsPerBlock)
    add_positions_kernel(std::int64_t num_rows,
                         std::int64_t first_row,
                         std::int64_t num_positions,
                         const T* positions,
                         const T* x,
                         T* y,
                         std::int64_t C) {
  const std::int64_t row = row_of_warp();
  if (row < num_rows) {
    write_sum<n>(x + row * C, positions + (first_row + row) % num_positions * C, y + row * C, C);
  }
}

template <int n, typename T>
void start_lookup(StreamView stream, const EmbeddingForward& args, const T* positions) {
  const auto num_tokens = static_cast<std::int64_t>(args.tokens.num_elements());
  const TableRows<const T> table{
      args.token_table.data<T>(), args.first_token, args.token_table.dim(0)};
  launch(stream,
         warp_for_each(num_tokens),
         lookup_kernel<n, T>,
         args.tokens.data<std::int32_t>(),
         num_tokens,
         args.tokens.dim(1),
         table,
         positions,
         args.y.data<T>(),
         args.y.dim(2));
}

template <int n, typename T>
void start_add_positions(StreamView stream, const PositionAdd& args) {
  launch(stream,
         warp_for_each(args.y.dim(0)),
         add_positions_kernel<n, T>,
         args.y.dim(0),
         args.first_row,
         args.T,
         args.position_table.data<T>(),
         args.x.data<T>(),
         args.y.data<T>(),
         args.y.dim(1));
}

}  // namespace

template <typename T>
void embedding_forward(StreamView stream, const EmbeddingForward& args) {
  constexpr int kPack = kPackSize<T>;
  const std::int64_t C = args.y.dim(2);
  const T* const positions = args.position_table.empty()
                                 ? nullptr
                                 : args.position_table.data<T>() + args.first_position * C;
  const bool aligned =
      C % kPack == 0 && are_aligned(args.token_table.data<T>(), positions, args.y.data<T>());
  aligned ? start_lookup<kPack, T>(stream, args, positions)
          : start_lookup<1, T>(stream, args, positions);
}

template <typename T>
void add_positions(StreamView stream, const PositionAdd& args) {
  constexpr int kPack = kPackSize<T>;
  const bool aligned =
      args.y.dim(1) % kPack == 0 &&
      are_aligned(args.position_table.data<T>(), args.x.data<T>(), args.y.data<T>());
  aligned ? start_add_positions<kPack, T>(stream, args) : start_add_positions<1, T>(stream, args);
}

template void embedding_forward<float>(StreamView, const EmbeddingForward&);
template void embedding_forward<BFloat16>(StreamView, const EmbeddingForward&);
template void add_positions<float>(StreamView, const PositionAdd&);
template void add_positions<BFloat16>(StreamView, const PositionAdd&);

}  // namespace slackline::cuda
