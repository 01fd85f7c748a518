#pragma once

#include <optional>

#include "core/kernels/matmul/matmul.h"

namespace slackline::cuda {

// Seconds of matmul() as it is, and of what cuBLASLt suggests for the same product, fused where it
// can; the first suggestion and the fastest.
struct ProductTimes {
  double ours = 0.0;
  double first = 0.0;
  double best = 0.0;
  int num_suggestions = 0;
};

// Writes C some hundred times and waits for the stream. Nothing where there is no library to ask
// (no_product_times.cpp).
[[nodiscard]] std::optional<ProductTimes> product_times(StreamView stream,
                                                        const MatmulArgs& args,
                                                        int num_suggestions);

}  // namespace slackline::cuda
