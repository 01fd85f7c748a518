#include "model/model_slice.h"

#include <algorithm>

namespace slackline {

bool ChunkSlice::has_part_of(const ParameterSpec& spec) const {
  switch (spec.part) {
    case ModelPart::embedding:
      return embedding;
    case ModelPart::head:
      return head;
    case ModelPart::layer:
      break;
  }
  return first_layer <= spec.layer && spec.layer < last_layer;
}

std::vector<int> ModelSlice::layers() const {
  std::vector<int> list;
  for (const ChunkSlice& chunk : chunks) {
    for (int layer = chunk.first_layer; layer < chunk.last_layer; ++layer) {
      list.push_back(layer);
    }
  }
  std::ranges::sort(list);
  return list;
}

bool ModelSlice::holds(const ParameterSpec& spec, const ModelConfig& config) const {
  const bool second_copy =
      spec.role == ParameterRole::token_embedding && head() && config.tie_embeddings;
  return second_copy || std::any_of(chunks.begin(), chunks.end(), [&](const ChunkSlice& chunk) {
           return chunk.has_part_of(spec);
         });
}

}  // namespace slackline
