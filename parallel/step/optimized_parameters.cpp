#include "parallel/step/optimized_parameters.h"

namespace slackline {

std::vector<OptimizedTensor> optimized_parameters(const Parameters& parameters,
                                                  bool decay_embeddings) {
  std::vector<OptimizedTensor> tensors;
  for (const Parameter& parameter : parameters.all()) {
    const bool decay = decays(parameter.spec.role, decay_embeddings);
    tensors.push_back({.name = parameter.spec.name,
                       .weight = parameter.weight,
                       .gradient = parameter.gradient,
                       .weight_copy = parameter.weight_bf16,
                       .decay = decay ? WeightDecay::yes : WeightDecay::no});
  }
  return tensors;
}

}  // namespace slackline
