#include "compress/kernels/low_rank/low_rank.h"

#include <algorithm>
#include <string>

#include "compress/kernels/low_rank/low_rank_backends.h"
#include "core/kernels/dispatch.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/matmul/matmul.h"
#include "core/kernels/operand.h"

namespace slackline {

namespace {

void check(const LowRankProduct& product, const char* op) {
  const Shape shape = product.added.empty() ? product.matrix.shape() : product.added.shape();
  SL_CHECK(shape.rank() == 2 && product.left.shape().rank() == 2,
           std::string(op) + " takes matrices");
  const std::int64_t r = product.left.dim(1);
  if (!product.matrix.empty()) {
    check_operand(product.matrix, {"low_rank matrix", DType::f32, shape});
  }
  if (!product.added.empty()) {
    check_operand(product.added, {"low_rank added", DType::f32, shape});
  }
  check_operand(product.left, {"low_rank left", DType::f32, Shape{shape[0], r}});
  check_operand(product.right, {"low_rank right", DType::f32, Shape{r, shape[1]}});
}

bool is_thin(const LowRankProduct& product) {
  return product.left.dim(1) <= kThinRank;
}

LowRankProducts thin_ones(std::span<const LowRankProduct> products) {
  LowRankProducts thin;
  for (const LowRankProduct& product : products) {
    if (is_thin(product) && product.left.num_elements() > 0) {
      thin.push_back(product);
    }
  }
  return thin;
}

const Tensor& compensated(const LowRankProduct& product) {
  return product.added.empty() ? product.matrix : product.added;
}

MatmulArgs left_product(const LowRankProduct& product) {
  return {.a = compensated(product),
          .b = product.right,
          .c = product.left,
          .transpose_b = Transpose::yes};
}

MatmulArgs right_product(const LowRankProduct& product) {
  return {.a = product.left,
          .b = compensated(product),
          .c = product.right,
          .transpose_a = Transpose::yes};
}

// Ranks that hold the same gradients reconstruct them alike.
MatmulArgs outer_product(const LowRankProduct& product, const Tensor& to, Accumulate accumulate) {
  return {.a = product.left,
          .b = product.right,
          .c = to,
          .accumulate = accumulate,
          .same_bits = SameBits::on_all_hosts};
}

}  // namespace

void low_rank_left(StreamView stream, std::span<const LowRankProduct> products) {
  for (const LowRankProduct& product : products) {
    check(product, "low_rank_left");
    if (!is_thin(product)) {
      if (!product.added.empty()) {
        accumulate(stream, product.matrix, product.added);
      }
      matmul(stream, left_product(product));
    }
  }
  SL_BACKEND(stream, thin_low_rank_left, stream, thin_ones(products));
}

void low_rank_right(StreamView stream, std::span<const LowRankProduct> products) {
  for (const LowRankProduct& product : products) {
    check(product, "low_rank_right");
    if (!is_thin(product)) {
      matmul(stream, right_product(product));
    }
  }
  SL_BACKEND(stream, thin_low_rank_right, stream, thin_ones(products));
}

void low_rank_multiply(StreamView stream,
                       std::span<const LowRankProduct> products,
                       LowRankOutput output,
                       float share) {
  for (const LowRankProduct& product : products) {
    check(product, "low_rank_multiply");
    if (is_thin(product)) {
      continue;
    }
    if (output != LowRankOutput::none) {
      matmul(stream,
             outer_product(product,
                           product.matrix,
                           output == LowRankOutput::add ? Accumulate::yes : Accumulate::no));
    }
    if (!product.added.empty()) {
      ArenaScope scratch(stream.workspace());
      LowRankProduct taken = product;
      taken.left = scratch.allocate(DType::f32, product.left.shape());
      scale(stream, product.left, -share, taken.left);
      matmul(stream, outer_product(taken, product.added, Accumulate::yes));
    }
  }
  SL_BACKEND(stream, thin_low_rank_multiply, stream, thin_ones(products), output, share);
}

std::size_t low_rank_workspace_bytes(std::span<const LowRankProduct> products,
                                     const Workers& workers) {
  std::size_t widest = 0;
  for (const LowRankProduct& product : products) {
    if (!is_thin(product)) {
      const std::size_t taken = Arena::aligned_bytes(DType::f32, product.left.shape());
      const MatmulArgs outer = outer_product(product, compensated(product), Accumulate::yes);
      widest = std::max({widest,
                         matmul_workspace_bytes(left_product(product), workers),
                         matmul_workspace_bytes(right_product(product), workers),
                         taken + matmul_workspace_bytes(outer, workers)});
    }
  }
  return std::max(widest,
                  workers.device == Device::cuda
                      ? cuda::thin_low_rank_workspace_bytes(thin_ones(products))
                      : cpu::thin_low_rank_workspace_bytes(thin_ones(products)));
}

}  // namespace slackline
