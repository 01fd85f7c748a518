#pragma once

#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// What stands between two layers and changes what passes: inference with a model whose training
// compressed activations there. Used by the thread of the pass.
class BoundaryFilter {
 public:
  BoundaryFilter() = default;
  virtual ~BoundaryFilter() = default;
  BoundaryFilter(const BoundaryFilter&) = delete;
  BoundaryFilter& operator=(const BoundaryFilter&) = delete;

  // Changes `rows`, the residual stream (n, C) in f32 after the layer of this index of the model,
  // in place. Called for every layer, once it has run on `stream`.
  virtual void after_layer(StreamView stream, int layer, const Tensor& rows) = 0;
};

}  // namespace slackline
