#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "model/pass.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"
#include "tests/support/thread_sum.h"

namespace slackline::testing {

// The embedding tables and the head of a model without blocks, as one tensor rank has them: rows
// of the vocabulary from the same random table on every rank.
inline Parameters vocabulary_share(const ModelConfig& config,
                                   DType compute,
                                   const TensorShare& share) {
  ModelConfig local = config;
  local.vocab = static_cast<int>(share.num_of(config.vocab));
  Parameters parameters(local, {.compute = compute});
  Stream stream(test_stream(1));
  for (Parameter& parameter : parameters.all()) {
    const bool cut = parameter.spec.role == ParameterRole::token_embedding ||
                     parameter.spec.role == ParameterRole::head;
    if (cut) {
      parameter.spec.shape = Shape{config.vocab, config.hidden};
    }
    const std::vector<double> values =
        random_values(parameter.spec.shape.num_elements(),
                      {.seed = parameter.spec.name.size(), .deviation = 0.5});
    const std::int64_t first = cut ? share.first_of(config.vocab) * config.hidden : 0;
    const std::span<float> weight = parameter.weight.span<float>();
    std::transform(values.begin() + first,
                   values.begin() + first + static_cast<std::ptrdiff_t>(weight.size()),
                   weight.begin(),
                   [](double value) { return static_cast<float>(value); });
    const std::span<float> gradient = parameter.gradient.span<float>();
    std::fill(gradient.begin(), gradient.end(), 0.0F);
  }
  parameters.refresh_copies(stream);
  return parameters;
}

// B sequences of T tokens and their targets, all over the vocabulary.
struct TokenBatch {
  TokenBatch(std::int64_t B_, std::int64_t T_, int vocab) : B(B_), T(T_) {
    for (std::int64_t i = 0; i < B * T; ++i) {
      tokens.push_back(static_cast<std::int32_t>((i * i + 3) % vocab));
      targets.push_back(static_cast<std::int32_t>((i * 7 + 1) % vocab));
    }
  }

  [[nodiscard]] Pass pass(StreamView stream, TensorSum& sum) {
    return {.stream = stream,
            .sum = &sum,
            .batch = {.tokens = Tensor(std::span(tokens)).reshaped({B, T}),
                      .targets = Tensor(std::span(targets)),
                      .first_sample = 40}};
  }

  std::int64_t B, T;
  std::vector<std::int32_t> tokens, targets;
};

inline std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> values;
  for (std::size_t i = 0; i < tensor.num_elements(); ++i) {
    values.push_back(tensor.dtype() == DType::f32 ? tensor.data<float>()[i]
                                                  : static_cast<float>(tensor.data<BFloat16>()[i]));
  }
  return values;
}

inline void append(std::vector<double>& to, const std::vector<double>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

// Layouts of the tensor axis that the vocabulary's tests run on.
inline constexpr TensorRanks kTensorLayouts[] = {
    {2, false}, {2, true}, {3, false}, {3, true}, {4, false}, {4, true}};

}  // namespace slackline::testing
