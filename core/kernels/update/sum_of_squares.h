#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/kernels/update/adamw.h"
#include "core/kernels/update/outer_step.h"
#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"
#include "core/tensor/workers.h"

namespace slackline {

// Sums of squares of f32 tensors in double: blocks that depend on a tensor's size alone, each
// summed over fixed lanes, then blocks in order. The same bits for any number of threads, and
// whatever other tensors there are. An Inf or NaN in a tensor makes its sum not finite. Waits for
// the stream.
[[nodiscard]] std::vector<double> sums_of_squares(StreamView stream,
                                                  std::span<const Tensor> tensors);

// Elements of f32 tensors, summed over all, that are at least so large, whatever their sign. Waits
// for the stream; its workspace is that of sums of squares. REQUIRES: limit > 0.
[[nodiscard]] double count_at_least(StreamView stream,
                                    std::span<const Tensor> tensors,
                                    float limit);

// Moments of one tensor, f32 and of one shape.
struct Moments {
  Tensor m{};
  Tensor v{};
};

// Sums, tensor by tensor and as sums of squares are made, the squares of the directions in which
// AdamW's `step` has moved weights, decay apart: what stands beside its rate in adamw.h, of moments
// as the step has left them. Waits for the stream; its workspace is that of sums of squares of m.
[[nodiscard]] std::vector<double> sums_of_squared_directions(StreamView stream,
                                                             std::span<const Moments> moments,
                                                             const AdamwStep& step);

// Momentum and difference of one tensor, f32 and of one shape.
struct OuterMemories {
  Tensor momentum{};
  Tensor difference{};
};

// Sums, tensor by tensor and as sums of squares are made, the squares of what an outer step would
// subtract from anchors, over its lr (outer_step.h). Nothing is written. Waits for the stream; its
// workspace is that of sums of squares of the momentum.
[[nodiscard]] std::vector<double> sums_of_squared_changes(StreamView stream,
                                                          std::span<const OuterMemories> memories,
                                                          const OuterStep& step);

// The tensors need shapes only.
[[nodiscard]] std::size_t sums_of_squares_workspace_bytes(std::span<const Tensor> tensors,
                                                          const Workers& workers);

// Sums the squares of one tensor.
[[nodiscard]] inline double sum_of_squares(StreamView stream, const Tensor& tensor) {
  return sums_of_squares(stream, {&tensor, 1}).front();
}

}  // namespace slackline
