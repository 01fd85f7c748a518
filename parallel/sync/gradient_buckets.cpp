#include "parallel/sync/gradient_buckets.h"

#include <algorithm>

#include <fmt/format.h>

namespace slackline {

namespace {

using Kind = GradientBucket::Kind;

Kind kind_of(const Parameter& parameter, const BucketRule& rule) {
  if (is_norm(parameter.spec.role)) {
    return Kind::norms;
  }
  if (parameter.spec.role == ParameterRole::bias && rule.biases_apart) {
    return Kind::biases;
  }
  const bool table = parameter.spec.role == ParameterRole::token_embedding;
  return table && rule.tied_embeddings ? Kind::table : Kind::layers;
}

bool has_room(const GradientBucket& bucket,
              const GradientBucket::Unit& unit,
              const BucketRule& rule) {
  if (bucket.kind == Kind::norms || bucket.kind == Kind::biases || bucket.units.back() == unit) {
    return true;
  }
  return bucket.count * sizeof(float) < rule.bucket_bytes &&
         chunk_of(bucket.units.back(), rule.chunks) == chunk_of(unit, rule.chunks);
}

// Joins the bucket begun last while that has room; a layer stays together.
void add(std::vector<GradientBucket>& buckets,
         Kind kind,
         const Parameter& parameter,
         const BucketRule& rule) {
  const GradientBucket::Unit unit{parameter.spec.part, parameter.spec.layer};
  const bool trained = parameter.spec.trained;
  if (buckets.empty() || buckets.back().kind != kind || buckets.back().trained != trained ||
      !has_room(buckets.back(), unit, rule)) {
    buckets.push_back({.kind = kind, .trained = trained});
  }
  GradientBucket& bucket = buckets.back();
  bucket.first = parameter.first_element;  // each stands before the one added last
  bucket.count += Parameters::place_elements(
      parameter.shard.shape,
      rule.biases_apart ? Parameters::Biases::before_norms : Parameters::Biases::with_matrices);
  bucket.holds.push_back(&parameter);
  if (bucket.units.empty() || bucket.units.back() != unit) {
    bucket.units.push_back(unit);
  }
}

}  // namespace

std::vector<GradientBucket> gradient_buckets(const std::vector<Parameter>& parameters,
                                             const BucketRule& rule) {
  std::vector<GradientBucket> buckets;
  for (const bool trained : {true, false}) {
    for (const Kind kind : {Kind::layers, Kind::biases, Kind::norms, Kind::table}) {
      for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
        if (kind_of(*parameter, rule) == kind && parameter->spec.trained == trained) {
          add(buckets, kind, *parameter, rule);
        }
      }
    }
  }
  return buckets;
}

std::size_t bucket_of(const Parameter& parameter, const std::vector<GradientBucket>& buckets) {
  const auto holds = [&parameter](const GradientBucket& bucket) {
    return std::ranges::find(bucket.holds, &parameter) != bucket.holds.end();
  };
  return static_cast<std::size_t>(std::ranges::find_if(buckets, holds) - buckets.begin());
}

std::ptrdiff_t chunk_of(const GradientBucket::Unit& unit, const std::vector<ChunkSlice>& chunks) {
  const auto holds = [&unit](const ChunkSlice& chunk) {
    return chunk.has_part(unit.first, unit.second);
  };
  return std::ranges::find_if(chunks, holds) - chunks.begin();
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
