#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/contents.h"
#include "core/tensor/tensor.h"
#include "parallel/step/mesh_model.h"

namespace slackline {

// Elements of an optimizer piece's parameter as a checkpoint has them: in the tensor that is named
// `group` and the parameter, cut where the parameter's shard is. `memory` holds the elements.
// `worker`: whose they are, where workers that train apart each save their own.

// Reads them.
void read_parts(Checkpoint& checkpoint,
                const std::string& group,
                std::optional<std::int64_t> worker,
                const OptimizerPiece& piece,
                const Slice& elements,
                const Tensor& memory);

// Lists them to be saved. Views.
void add_parts(const std::string& group,
               std::optional<std::int64_t> worker,
               const OptimizerPiece& piece,
               const Slice& elements,
               const Tensor& memory,
               std::vector<CheckpointTensor>& tensors);

}  // namespace slackline
