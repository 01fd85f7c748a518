#include "model/model_slice.h"

#include <algorithm>

namespace slackline {

bool ChunkSlice::has_part(ModelPart part, int layer) const {
  switch (part) {
    case ModelPart::embedding:
      return embedding;
    case ModelPart::head:
      return head;
    case ModelPart::layer:
      break;
  }
  return first_layer <= layer && layer < last_layer;
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
           return chunk.has_part(spec.part, spec.layer);
         });
}

}  // namespace slackline
