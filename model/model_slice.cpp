#include "model/model_slice.h"

namespace slackline {

bool ModelSlice::holds(const ParameterSpec& spec, const ModelConfig& config) const {
  switch (spec.part) {
    case ModelPart::embedding:
      return embedding() ||
             (spec.role == ParameterRole::token_embedding && head() && config.tie_embeddings);
    case ModelPart::head:
      return head();
    case ModelPart::layer:
      return std::any_of(chunks.begin(), chunks.end(), [&](const ChunkSlice& chunk) {
        return chunk.first_layer <= spec.layer && spec.layer < chunk.last_layer;
      });
  }
  return false;
}

}  // namespace slackline
