#include "parallel/sync/gradient_buckets.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/tensor/arena.h"

namespace slackline {

namespace {

using Kind = GradientBucket::Kind;

Kind kind_of(const Parameter& parameter, bool tied_embeddings) {
  if (is_norm(parameter.spec.role)) {
    return Kind::norms;
  }
  const bool table = parameter.spec.role == ParameterRole::token_embedding;
  return table && tied_embeddings ? Kind::table : Kind::layers;
}

bool has_room(const GradientBucket& bucket,
              const GradientBucket::Unit& unit,
              std::size_t bucket_bytes) {
  return bucket.kind == Kind::norms || bucket.units.back() == unit ||
         bucket.count * sizeof(float) < bucket_bytes;
}

// Joins the bucket begun last while that has room; a layer stays together.
void add(std::vector<GradientBucket>& buckets,
         Kind kind,
         const Parameter& parameter,
         std::size_t bucket_bytes) {
  const GradientBucket::Unit unit{parameter.spec.part, parameter.spec.layer};
  if (buckets.empty() || buckets.back().kind != kind ||
      !has_room(buckets.back(), unit, bucket_bytes)) {
    buckets.push_back({.kind = kind});
  }
  GradientBucket& bucket = buckets.back();
  bucket.first = parameter.first_element;  // each stands before the one added last
  bucket.count += Arena::aligned_bytes(DType::f32, parameter.shard.shape) / sizeof(float);
  bucket.holds.push_back(&parameter);
  if (bucket.units.empty() || bucket.units.back() != unit) {
    bucket.units.push_back(unit);
  }
}

}  // namespace

std::vector<GradientBucket> gradient_buckets(const std::vector<Parameter>& parameters,
                                             bool tied_embeddings,
                                             std::size_t bucket_bytes) {
  std::vector<GradientBucket> buckets;
  for (const Kind kind : {Kind::layers, Kind::norms, Kind::table}) {
    for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
      if (kind_of(*parameter, tied_embeddings) == kind) {
        add(buckets, kind, *parameter, bucket_bytes);
      }
    }
  }
  return buckets;
}

std::string text_of(const GradientBucket::Unit& unit) {
  switch (unit.first) {
    case ModelPart::embedding:
      return "the embedding";
    case ModelPart::head:
      return "the head";
    case ModelPart::layer:
      break;
  }
  return fmt::format("layer {}", unit.second);
}

}  // namespace slackline
