#include "tools/bench/product_times.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "core/kernels/matmul/cublas_product.h"
#include "core/kernels/matmul/product_tuning.h"

namespace slackline::cuda {

std::optional<ProductTimes> product_times(StreamView stream,
                                          const MatmulArgs& args,
                                          int num_suggestions) {
  MatmulArgs without = args;
  without.bias = {};
  without.gelu_output = {};
  without.gelu_input = {};
  without.bias_gradient = {};
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
