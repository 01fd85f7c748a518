#include "parallel/step/optimized_parameters.h"

namespace slackline {

namespace {

// The piece's elements; a whole tensor keeps its shape.
Tensor elements_of(const Tensor& tensor, Slice range) {
  if (tensor.empty() || range.count() == tensor.num_elements()) {
    return tensor;
  }
  return tensor.reshaped({static_cast<std::int64_t>(tensor.num_elements())})
      .rows(static_cast<std::int64_t>(range.begin), static_cast<std::int64_t>(range.end));
}

}  // namespace

std::vector<OptimizedTensor> optimized_parameters(const std::vector<OptimizerPiece>& pieces,
                                                  bool decay_embeddings) {
  std::vector<OptimizedTensor> tensors;
  for (const OptimizerPiece& piece : pieces) {
    const Parameter& parameter = *piece.parameter;
    const bool decay = decays(parameter.spec.role, decay_embeddings);
    tensors.push_back({.name = parameter.spec.name,
                       .weight = elements_of(parameter.weight, piece.range),
                       .gradient = elements_of(parameter.gradient, piece.range),
                       .weight_copy = elements_of(parameter.weight_bf16, piece.range),
                       .decay = decay ? WeightDecay::yes : WeightDecay::no});
  }
  return tensors;
}

std::vector<OptimizedTensor> optimized_parameters(const Parameters& parameters,
                                                  bool decay_embeddings) {
  std::vector<OptimizerPiece> pieces;
  for (const Parameter& parameter : parameters.all()) {
    pieces.push_back({.parameter = &parameter, .range = {0, parameter.weight.num_elements()}});
  }
  return optimized_parameters(pieces, decay_embeddings);
}

}  // namespace slackline
