#pragma once

#include <cstddef>

#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// Ops on some elements of a tensor, named by `indices` (k) u32 into its elements in row-major
// order. The indices are distinct and in range: callers check what comes from outside, with
// check_ascending() (message_checks.h). Dense tensors are f32 of any shape; `kept` is (k), f32 or
// bf16. No sums, so the bits depend on the arguments alone.

// kept[i] = values[indices[i]], rounded to kept's type.
void gather_at(StreamView stream, const Tensor& values, const Tensor& indices, const Tensor& kept);

enum class ScatterMode { write, add };

// out[indices[i]] = scale * kept[i], or added to what is there. Other elements stay.
struct Scatter {
  Tensor kept{};
  Tensor indices{};
  Tensor out{};
  float scale = 1.0F;
  ScatterMode mode = ScatterMode::write;
};

void scatter_at(StreamView stream, const Scatter& args);

// residual[indices[i]] -= kept[i]: what has been sent is no longer owed. Nothing is owed (0) where
// kept[i] is Inf or NaN either, so that one bad value does not stay for good.
void subtract_at(StreamView stream,
                 const Tensor& kept,
                 const Tensor& indices,
                 const Tensor& residual);

// tell_non_finite() leaves what it finds, or makes it 0.
enum class NonFinite { keep, clear };

// Makes kept[0] NaN if `values` has an Inf or NaN anywhere, so that a message that leaves that
// element out tells of it all the same. NonFinite::clear: the element becomes 0, as
// subtract_at() has it.
void tell_non_finite(StreamView stream, const Tensor& values, NonFinite found, const Tensor& kept);

// Zeroes all elements of `tensor` but those. Scratch on the stream's workspace:
// keep_only_workspace_bytes().
void keep_only(StreamView stream, const Tensor& indices, const Tensor& tensor);
[[nodiscard]] std::size_t keep_only_workspace_bytes(std::size_t k);

}  // namespace slackline
