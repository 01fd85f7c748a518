#include "tests/equivalence/logical_state.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "core/checkpoint/region.h"

namespace slackline::testing {

namespace {

std::byte* bytes_of(const void* data) {
  return static_cast<std::byte*>(const_cast<void*>(data));  // copy_rectangle only reads its source
}

}  // namespace

LogicalState::LogicalState(const ModelConfig& model, Of parameters) {
  for (const ParameterSpec& spec : parameter_table(model)) {
    if (parameters == Of::trained && !spec.trained) {
      continue;
    }
    const std::size_t count = spec.shape.num_elements();
    tensors_.emplace(spec.name, std::vector<float>(count, NAN));
    elements_ += count;
  }
}

void LogicalState::put(const OptimizerPiece& piece, const Tensor& elements) {
  const Parameter& parameter = *piece.parameter;
  std::vector<float>& logical = tensors_.at(parameter.spec.name);
  std::vector<float> values;
  if (elements.dtype() == DType::bf16) {
    for (const BFloat16 value : elements.span<BFloat16>()) {
      values.push_back(static_cast<float>(value));
    }
  } else {
    const std::span<const float> all = elements.span<float>();
    values.assign(all.begin(), all.end());
  }
  for (const ShardPart& part : parts_of_range(parameter.shard, piece.range)) {
    copy_rectangle({.data = bytes_of(values.data()),
                    .shape = parameter.shard.shape,
                    .point = part.local.start,
                    .first = piece.range.begin},
                   {.data = bytes_of(logical.data()),
                    .shape = parameter.spec.shape,
                    .point = part.logical.start},
                   part.logical.shape,
                   sizeof(float));
  }
  const std::lock_guard lock(mutex_);
  elements_put_ += piece.range.count();
}

LogicalTensors LogicalState::take() {
  SL_CHECK_EQ(elements_put_, elements_);
  for (const auto& [name, values] : tensors_) {
    // As many as there are and none left out: each once.
    SL_CHECK(std::none_of(values.begin(), values.end(), [](float v) { return std::isnan(v); }),
             "an element of " + name + " is missing");
  }
  return std::move(tensors_);
}

void LogicalState::require_copies(const LogicalTensors& logical, const MeshModel& model) {
  const SyncPlan& plan = model.sync_plan();
  for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    for (const Parameter* parameter : plan.buckets[bucket].holds) {
      const Shape& shape = parameter->shard.shape;
      std::vector<float> expected(shape.num_elements());
      for (const ShardPart& part : parameter->shard.parts) {
        copy_rectangle(
            {.data = bytes_of(logical.at(parameter->spec.name).data()),
             .shape = parameter->spec.shape,
             .point = part.logical.start},
            {.data = bytes_of(expected.data()), .shape = shape, .point = part.local.start},
            part.logical.shape,
            sizeof(float));
      }
      for (const BucketMemory::Held& held : model.memory().held(bucket, *parameter)) {
        for (std::size_t i = 0; i < held.range.count(); ++i) {
          const float value = expected[held.range.begin + i];
          const bool same = held.weights.dtype() == DType::f32
                                ? held.weights.span<float>()[i] == value
                                : held.weights.span<BFloat16>()[i] == BFloat16(value);
          SL_CHECK(same, "copies of " + parameter->spec.name + " differ");
        }
      }
    }
  }
}

}  // namespace slackline::testing
