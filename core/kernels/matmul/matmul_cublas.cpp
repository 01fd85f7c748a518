#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "core/error.h"
#include "core/kernels/elementwise/bias_gradient.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/matmul/matmul_backends.h"
#include "core/kernels/matmul/matmul_products.h"
#include "core/kernels/matmul/product_tuning.h"

// Sums run in fp32 (CUBLAS_COMPUTE_32F: no TF32). Which algorithm is taken for a problem is
// measured once for a card and a version of the library and kept in a file (product_tuning.h), so
// a run gives the same bits each time as long as the file is there.
namespace slackline::cuda {

namespace {

cublasLtMatmulAlgo_t algorithm_of_plain(StreamView stream, const CublasProduct& product) {
  const std::optional<cublasLtMatmulAlgo_t> algorithm = algorithm_for(stream, product);
  if (!algorithm) {
    const MatmulShape shape = shape_of(product.args());
    throw DeviceError("cuBLASLt has no algorithm for a product of " + std::to_string(shape.M) +
                      " x " + std::to_string(shape.N) + " x " + std::to_string(shape.K));
  }
  return *algorithm;
}

// Without the epilogue that the arguments may have.
MatmulArgs plain(MatmulArgs args) {
  args.bias = {};
  args.gelu_output = {};
  args.gelu_input = {};
  args.bias_gradient = {};
  return args;
}

// The library's fast kernels for bf16 take extents in whole packs only. Where rows lie apart, and
// begin at whole packs, an extent that is none is cut: products of GPT-2's 50257 columns are ten
// times as fast as 50256 and one.
constexpr std::int64_t kPack = 8;

bool is_worth_cutting(std::int64_t extent, std::int64_t row) {
  return row % kPack == 0 && row > extent && extent > kPack && extent % kPack != 0;
}

// Columns [begin, end) of a matrix whose rows lie apart.
Tensor columns(const Tensor& matrix, std::int64_t begin, std::int64_t end) {
  auto* const first = static_cast<std::byte*>(matrix.raw()) +
                      static_cast<std::size_t>(begin) * size_of(matrix.dtype());
  return {first, matrix.dtype(), {matrix.dim(0), end - begin}, matrix.device()};
}

using Parts = std::array<MatmulArgs, 2>;

// Columns of C, which are rows of B.
Parts cut_columns(const MatmulArgs& args, std::int64_t at) {
  Parts parts{args, args};
  const std::int64_t N = args.c.dim(1);
  parts[0].b = args.b.rows(0, at);
  parts[0].c = columns(args.c, 0, at);
  parts[1].b = args.b.rows(at, N);
  parts[1].c = columns(args.c, at, N);
  return parts;
}

// Rows of C, which are columns of A.
Parts cut_rows(const MatmulArgs& args, std::int64_t at) {
  Parts parts{args, args};
  const std::int64_t M = args.c.dim(0);
  parts[0].a = columns(args.a, 0, at);
  parts[0].c = args.c.rows(0, at);
  parts[1].a = columns(args.a, at, M);
  parts[1].c = args.c.rows(at, M);
  return parts;
}

// Terms of the sums. The few come first: what a narrow C rounds off them is small, and the many are
// added to them before they are rounded.
Parts cut_sums(const MatmulArgs& args, std::int64_t at) {
  Parts parts{args, args};
  const std::int64_t K = args.a.dim(1);
  parts[0].a = columns(args.a, at, K);
  parts[0].b = args.b.rows(at, K);
  parts[1].a = columns(args.a, 0, at);
  parts[1].b = args.b.rows(0, at);
  parts[1].accumulate = Accumulate::yes;
  return parts;
}

// The products that make up one, in order; none where it is best made as it is.
std::optional<Parts> parts_of(const MatmulArgs& args) {
  if (args.a.dtype() != DType::bf16) {
    return std::nullopt;
  }
  const std::int64_t columns_of_c = args.c.dim(1);
  if (args.transpose_b == Transpose::yes && is_worth_cutting(columns_of_c, args.c_row())) {
    return cut_columns(args, columns_of_c / kPack * kPack);
  }
  const std::int64_t columns_of_a = args.a.dim(1);
  if (!is_worth_cutting(columns_of_a, args.a_row())) {
    return std::nullopt;
  }
  const std::int64_t at = columns_of_a / kPack * kPack;
  if (args.transpose_a == Transpose::no) {
    return args.transpose_b == Transpose::no ? std::optional(cut_sums(args, at)) : std::nullopt;
  }
  return args.c_row() == columns_of_c ? std::optional(cut_rows(args, at)) : std::nullopt;
}

}  // namespace

bool fused_product(StreamView stream, const MatmulArgs& args) {
  CublasProduct product(args);
  if (!product.add_epilogue()) {
    return false;
  }
  const std::optional<cublasLtMatmulAlgo_t> algorithm = algorithm_for(stream, product);
  if (!algorithm) {
    return false;
  }
  SL_CUBLAS_CHECK(product.queue(stream, *algorithm));
  return true;
}

bool product_with_column_sums(StreamView stream, const MatmulArgs& args, const Tensor& sums) {
  if (args.c.dtype() != sums.dtype()) {
    return false;  // the library has sums of C's type only
  }
  const MatmulArgs without = plain(args);
  CublasProduct product(without);
  product.add_column_sums(sums);
  ArenaScope scratch(stream.workspace());
  const Tensor total = scratch.allocate(DType::f32, sums.shape());
  // The library's kernels that sum as well are often slower by more than what sums take by
  // themselves, so they have to prove their worth against that.
  const auto apart = [&] {
    slackline::fill_zero(stream, total);
    const auto alone = std::make_shared<CublasProduct>(without);
    const cublasLtMatmulAlgo_t algorithm = algorithm_of_plain(stream, *alone);
    return ProductTrial{
        .instead =
            [=, &without](void* output) {
              SL_CUBLAS_CHECK(alone->queue(stream, algorithm, output));
              slackline::bias_gradient(stream, without.b, total);
            },
        .after = [=] { slackline::accumulate(stream, sums, total); },
    };
  };
  const std::optional<cublasLtMatmulAlgo_t> algorithm = algorithm_for(stream, product, apart);
  if (!algorithm) {
    return false;
  }
  SL_CUBLAS_CHECK(product.queue(stream, *algorithm));
  return true;
}

void plain_product(StreamView stream, const MatmulArgs& args) {
  const MatmulArgs without = plain(args);
  if (const auto parts = parts_of(without)) {
    for (const MatmulArgs& part : *parts) {
      plain_product(stream, part);
    }
    return;
  }
  const CublasProduct product(without);
  SL_CUBLAS_CHECK(product.queue(stream, algorithm_of_plain(stream, product)));
}

}  // namespace slackline::cuda
