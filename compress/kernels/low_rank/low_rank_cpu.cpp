#include <algorithm>

#include "compress/kernels/low_rank/low_rank_backends.h"
#include "compress/kernels/low_rank/thin_products.h"
#include "core/kernels/parallel_ranges.h"

// Every pass walks matrices row by row in blocks that are contiguous in memory. Sums over rows
// (right factors) are made per block and then added in the order of blocks, so that blocks may run
// on any thread. Bytes of memory traffic per element with `added`: 12 for the left factor, 4 for
// the right one, 12 for output and remainder.
namespace slackline::cpu {

namespace {

constexpr std::size_t kRowsPerTask = 64;    // of passes without sums over rows
constexpr std::size_t kRowsPerBlock = 256;  // of sums over rows

struct Sizes {
  std::size_t n = 0;
  std::size_t m = 0;
  std::size_t r = 0;
};

Sizes sizes_of(const LowRankProduct& product) {
  return {.n = static_cast<std::size_t>(product.left.dim(0)),
          .m = static_cast<std::size_t>(product.right.dim(1)),
          .r = static_cast<std::size_t>(product.left.dim(1))};
}

std::size_t num_blocks(const LowRankProduct& product) {
  return (sizes_of(product).n + kRowsPerBlock - 1) / kRowsPerBlock;
}

// A run of rows of one of the products.
struct RowRange {
  std::size_t product = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::vector<RowRange> cut_rows(const LowRankProducts& products, std::size_t rows) {
  std::vector<RowRange> ranges;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const std::size_t n = sizes_of(products[i]).n;
    for (std::size_t begin = 0; begin < n; begin += rows) {
      ranges.push_back({.product = i, .begin = begin, .end = std::min(n, begin + rows)});
    }
  }
  return ranges;
}

void left_of_rows(const LowRankProduct& product, const RowRange& rows) {
  const Sizes size = sizes_of(product);
  const float* q = product.right.data<float>();
  float* p = product.left.data<float>();
  if (product.added.empty()) {
    const float* x = product.matrix.data<float>();
    return dot_rows(
        x + rows.begin * size.m, rows.end - rows.begin, q, size.r, size.m, p + rows.begin * size.r);
  }
  const float* matrix = product.matrix.data<float>();
  float* added = product.added.data<float>();
  for (std::size_t i = rows.begin; i < rows.end; i += 2) {  // two rows stay in the first cache
    const std::size_t count = std::min<std::size_t>(2, rows.end - i);
    simd::add_elements(matrix + i * size.m, added + i * size.m, count * size.m);
    dot_rows(added + i * size.m, count, q, size.r, size.m, p + i * size.r);
  }
}

// What one block of rows of product `p` adds to its right factor.
std::size_t partial_elements(const LowRankProduct& product) {
  return num_blocks(product) > 1 ? num_blocks(product) * product.right.num_elements() : 0;
}

}  // namespace

void thin_low_rank_left(StreamView stream, const LowRankProducts& products) {
  const std::vector<RowRange> tasks = cut_rows(products, kRowsPerTask);
  stream.pool().parallel_for(tasks.size(), [&](std::size_t task, int /*thread*/) {
    left_of_rows(products[tasks[task].product], tasks[task]);
  });
}

void thin_low_rank_right(StreamView stream, const LowRankProducts& products) {
  ArenaScope scratch(stream.workspace());
  std::vector<float*> partial;  // of each product; the factor itself where there is one block
  partial.reserve(products.size());
  for (const LowRankProduct& product : products) {
    const auto count = static_cast<std::int64_t>(partial_elements(product));
    partial.push_back(count == 0 ? product.right.data<float>()
                                 : scratch.allocate(DType::f32, Shape{count}).data<float>());
  }
  const std::vector<RowRange> tasks = cut_rows(products, kRowsPerBlock);
  stream.pool().parallel_for(tasks.size(), [&](std::size_t task, int /*thread*/) {
    const RowRange& rows = tasks[task];
    const LowRankProduct& product = products[rows.product];
    const Sizes size = sizes_of(product);
    const float* x = (product.added.empty() ? product.matrix : product.added).data<float>();
    float* sum = partial[rows.product] + rows.begin / kRowsPerBlock * size.r * size.m;
    std::fill_n(sum, size.r * size.m, 0.0F);
    add_combinations(x + rows.begin * size.m,
                     rows.end - rows.begin,
                     product.left.data<float>() + rows.begin * size.r,
                     size.r,
                     size.m,
                     sum);
  });
  for (std::size_t i = 0; i < products.size(); ++i) {
    const std::size_t count = products[i].right.num_elements();
    if (partial_elements(products[i]) == 0) {
      continue;
    }
    parallel_ranges(stream, count, kElementsPerTask, [&](std::size_t begin, std::size_t end) {
      float* q = products[i].right.data<float>();
      std::copy(partial[i] + begin, partial[i] + end, q + begin);
      for (std::size_t block = 1; block < num_blocks(products[i]); ++block) {
        simd::add_elements(partial[i] + block * count + begin, q + begin, end - begin);
      }
    });
  }
}

void thin_low_rank_multiply(StreamView stream,
                            const LowRankProducts& products,
                            LowRankOutput output,
                            float share) {
  const std::vector<RowRange> tasks = cut_rows(products, kRowsPerTask);
  stream.pool().parallel_for(tasks.size(), [&](std::size_t task, int /*thread*/) {
    const RowRange& rows = tasks[task];
    const LowRankProduct& product = products[rows.product];
    const Sizes size = sizes_of(product);
    const std::size_t first = rows.begin * size.m;
    float* out = output == LowRankOutput::none ? nullptr : product.matrix.data<float>() + first;
    float* added = product.added.empty() ? nullptr : product.added.data<float>() + first;
    const simd::Floats taken = simd::splat(-share);
    for_each_combination(
        product.left.data<float>() + rows.begin * size.r,
        rows.end - rows.begin,
        product.right.data<float>(),
        size.r,
        size.m,
        [&](std::size_t i, std::size_t c, simd::Floats value, auto part) {
          const std::size_t at = i * size.m + c;
          if (added != nullptr) {
            simd::store(
                simd::hn::MulAdd(taken, value, simd::load(added + at, part)), added + at, part);
          }
          if (output == LowRankOutput::write) {
            simd::store(value, out + at, part);
          } else if (output == LowRankOutput::add) {
            simd::store(simd::hn::Add(simd::load(out + at, part), value), out + at, part);
          }
        });
  });
}

std::size_t thin_low_rank_workspace_bytes(const LowRankProducts& products) {
  std::size_t bytes = 0;
  for (const LowRankProduct& product : products) {
    const auto count = static_cast<std::int64_t>(partial_elements(product));
    bytes += count == 0 ? 0 : Arena::aligned_bytes(DType::f32, Shape{count});
  }
  return bytes;
}

}  // namespace slackline::cpu
