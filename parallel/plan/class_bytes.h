#pragma once

#include <cstddef>
#include <vector>

#include "compress/codec.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/plan/sent_bytes.h"

namespace slackline {

// What all ranks send in a step for one class of transfers, in payload bytes.
struct ClassBytes {
  schedule::TransferClass members{};
  std::size_t raw = 0;   // without compression
  std::size_t sent = 0;  // under the plan, frames included

  std::vector<CodedMessage> compressed{};  // of the first tensor rank
  // A cost model has what its codecs send already (traffic_of).
  bool is_priced = false;
};

// Counts every class of the plan, to the byte, as the step's lists say. A gradient bucket counts
// where its last layer stands; gradients of norms count with the rank's first virtual stage.
[[nodiscard]] std::vector<ClassBytes> class_bytes(const MeshLists& lists,
                                                  const CompressionPlan& plan);

// What a codec does to the class, every other one plain; it has no list of messages. Gradients are
// counted as all that the ranks of tensor rank 0 exchange of them: classes may share a bucket.
[[nodiscard]] ClassBytes bytes_with(const MeshJob& job, const CompressionPlan::Class& row);

// What a message of the class is like: this tensor rank's share of a boundary, or its part of the
// smallest matrix of a layer.
[[nodiscard]] MatrixShape typical_shape(const MeshJob& job, const schedule::TransferClass& members);

}  // namespace slackline
