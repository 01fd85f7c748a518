#include "core/kernels/elementwise/bias_gradient.h"
#include "core/kernels/row_blocks.h"
#include "core/kernels/simd.h"

// A block's rows stream through memory once, front to back; the partial sums of all columns stay
// in the first-level cache. Four rows at a time save three quarters of the traffic to them.
namespace slackline::cpu {

namespace {

constexpr std::size_t kRowsAtOnce = 4;

// sums[c] = dy[begin][c] + dy[begin + 1][c] + ..., in this order.
template <typename T>
void sum_rows(const T* dy, std::size_t C, std::size_t num_rows, float* sums) {
  std::size_t row = 0;
  std::fill_n(sums, C, 0.0F);
  for (; row + kRowsAtOnce <= num_rows; row += kRowsAtOnce) {
    simd::for_each_vector(C, [&](std::size_t c, auto part) {
      simd::Floats sum = simd::load(sums + c, part);
      for (std::size_t k = 0; k < kRowsAtOnce; ++k) {
        sum = simd::hn::Add(sum, simd::load(dy + (row + k) * C + c, part));
      }
      simd::store(sum, sums + c, part);
    });
  }
  for (; row < num_rows; ++row) {
    simd::add_elements(dy + row * C, sums, C);
  }
}

}  // namespace

template <typename T>
void bias_gradient(StreamView stream, const Tensor& dy, const Tensor& d_bias) {
  const RowBlocks blocks(dy.dim(0));
  const std::int64_t C = dy.dim(1);
  const auto num_columns = static_cast<std::size_t>(C);
  ArenaScope scratch(stream.workspace());
  const Tensor partials =
      scratch.allocate(DType::f32, {static_cast<std::int64_t>(blocks.num_blocks), C});
  float* sums = partials.data<float>();
  const T* rows = dy.data<T>();
  stream.pool().parallel_for(blocks.num_blocks, [&](std::size_t block, int /*thread*/) {
    sum_rows(rows + blocks.begin(block) * num_columns,
             num_columns,
             blocks.end(block) - blocks.begin(block),
             sums + block * num_columns);
  });
  add_partials(stream, blocks, sums, num_columns, d_bias.span<float>());
}

std::size_t bias_gradient_workspace_bytes(std::int64_t N, std::int64_t C) {
  return Arena::aligned_bytes(DType::f32, {static_cast<std::int64_t>(RowBlocks(N).num_blocks), C});
}

template void bias_gradient<float>(StreamView, const Tensor&, const Tensor&);
template void bias_gradient<BFloat16>(StreamView, const Tensor&, const Tensor&);

}  // namespace slackline::cpu
