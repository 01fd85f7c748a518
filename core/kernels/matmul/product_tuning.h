#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/kernels/matmul/cublas_product.h"

// Which of its algorithms cuBLASLt is to use for a product. Private to the files that call it.
namespace slackline::cuda {

// What else there is to time beside the library's algorithms.
struct ProductTrial {
  // Does the same without the algorithm in question; it is given the output that the product would
  // have. Empty: nothing else can.
  std::function<void(void* output)> instead{};
  std::function<void()> after{};  // what has to follow the product; may be empty
};

// The algorithm for a product, kept as core/algorithm_cache.h says. The first call of a problem may
// measure: it waits for the stream, then runs the product some fifty times; results do not change.
// `trial` is called when something is to be measured. None where the library has no algorithm, or
// where what the trial does instead is faster, or would have to be measured and cannot.
[[nodiscard]] std::optional<cublasLtMatmulAlgo_t> algorithm_for(
    StreamView stream,
    const CublasProduct& product,
    const std::function<ProductTrial()>& trial = {});

// Seconds of each run on a stream that is otherwise idle: the least of some rounds, in which all
// take turns, since noise only adds. Infinite where a run returns false. Waits for the stream.
[[nodiscard]] std::vector<double> seconds_of(StreamView stream,
                                             std::span<const std::function<bool()>> runs);

}  // namespace slackline::cuda
