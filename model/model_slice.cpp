#include "model/model_slice.h"

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

bool ModelSlice::holds(const ParameterSpec& spec, const ModelConfig& config) const {
  const bool second_copy =
      spec.role == ParameterRole::token_embedding && head() && config.tie_embeddings;
  return second_copy || std::any_of(chunks.begin(), chunks.end(), [&](const ChunkSlice& chunk) {
           return chunk.has_part_of(spec);
         });
}

}  // namespace slackline
