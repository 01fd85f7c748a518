#include <algorithm>
#include <memory>

#include "core/error.h"
#include "core/kernels/elementwise/accumulate.h"
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
  const CublasProduct product(without);
  SL_CUBLAS_CHECK(product.queue(stream, algorithm_of_plain(stream, product)));
}

std::optional<ProductTimes> product_times(StreamView stream,
                                          const MatmulArgs& args,
                                          int num_suggestions) {
  const MatmulArgs without = plain(args);
  CublasProduct fused(args);
  const CublasProduct alone(without);
  std::vector<cublasLtMatmulAlgo_t> suggestions;
  const CublasProduct* product = &fused;
  if (fused.add_epilogue()) {
    suggestions = fused.suggestions(num_suggestions);
  }
  if (suggestions.empty()) {
    product = &alone;
    suggestions = alone.suggestions(num_suggestions);
  }
  std::vector<std::function<bool()>> runs = {[&] {
    slackline::matmul(stream, args);
    return true;
  }};
  for (const cublasLtMatmulAlgo_t& suggestion : suggestions) {
    runs.emplace_back([&, suggestion = &suggestion] {
      return product->queue(stream, *suggestion) == CUBLAS_STATUS_SUCCESS;
    });
  }
  const std::vector<double> seconds = seconds_of(stream, runs);
  if (suggestions.empty()) {
    return std::nullopt;
  }
  return ProductTimes{.ours = seconds[0],
                      .first = seconds[1],
                      .best = *std::min_element(seconds.begin() + 1, seconds.end()),
                      .num_suggestions = static_cast<int>(suggestions.size())};
}

}  // namespace slackline::cuda
