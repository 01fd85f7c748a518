#include "tools/run/checkpoint_parts.h"

namespace slackline {

namespace {

// Finds a part of some elements of a piece's parameter in memory that holds them.
LocalPlace place_of(const OptimizerPiece& piece, const Slice& elements, const ShardPart& part) {
  return {.shape = piece.parameter->shard.shape, .region = part.local, .first = elements.begin};
}

}  // namespace

void read_parts(Checkpoint& checkpoint,
                const std::string& group,
                std::optional<std::int64_t> worker,
                const OptimizerPiece& piece,
                const Slice& elements,
                const Tensor& memory) {
  for (const ShardPart& part : parts_of_range(piece.parameter->shard, elements)) {
    checkpoint.read_part(group + piece.parameter->spec.name,
                         part.logical,
                         memory,
                         place_of(piece, elements, part),
                         worker);
  }
}

void add_parts(const std::string& group,
               std::optional<std::int64_t> worker,
               const OptimizerPiece& piece,
               const Slice& elements,
               const Tensor& memory,
               std::vector<CheckpointTensor>& tensors) {
  for (const ShardPart& part : parts_of_range(piece.parameter->shard, elements)) {
    tensors.push_back({.name = group + piece.parameter->spec.name,
                       .data = memory,
                       .start = part.logical.start,
                       .logical = piece.parameter->spec.shape,
                       .worker = worker,
                       .place = place_of(piece, elements, part),
                       .widens = memory.dtype() == DType::bf16});
  }
}

}  // namespace slackline
