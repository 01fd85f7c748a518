#include "parallel/sync/gradient_buckets.h"

#include <algorithm>

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

// The elements of a parameter that fall into this rank's slice of its bucket.
Slice own_range(const GradientBucket& bucket, const Parameter& parameter, int rank, int size) {
  const Slice own = slice_of(bucket.count, rank, size);
  const std::size_t first = parameter.first_element - bucket.first;
  const std::size_t end = first + parameter.shard.shape.num_elements();
  const std::size_t begin_here = std::clamp(own.begin, first, end);
  const std::size_t end_here = std::clamp(own.end, first, end);
  return {begin_here - first, end_here - first};
}

OptimizerPiece sharded_piece(const GradientBucket& bucket,
                             const Parameter& parameter,
                             const ReductionPlace& place) {
  const bool table = bucket.kind == Kind::table;
  const bool spans_stages = table && place.fused_table;
  // Copies alternate in the group that spans both stages.
  const int rank =
      spans_stages ? 2 * place.data_rank + (place.first_copy ? 0 : 1) : place.data_rank;
  const int size = spans_stages ? 2 * place.data_size : place.data_size;
  const bool counted = !table || place.first_copy || spans_stages;
  return {.parameter = &parameter,
          .range = own_range(bucket, parameter, rank, size),
          .counted = counted,
          .saved = counted};
}

// Every data rank has all of it: one counts it, and they share the writing.
OptimizerPiece whole_piece(const GradientBucket& bucket,
                           const Parameter& parameter,
                           const ReductionPlace& place,
                           std::size_t index) {
  const bool first = bucket.kind != Kind::table || place.first_copy;
  const auto writer = static_cast<int>(index % static_cast<std::size_t>(place.data_size));
  return {.parameter = &parameter,
          .range = {0, parameter.shard.shape.num_elements()},
          .counted = first && place.data_rank == 0,
          .saved = first && place.data_rank == writer};
}

const GradientBucket& bucket_of(const std::vector<GradientBucket>& buckets,
                                const Parameter& parameter) {
  return *std::find_if(buckets.begin(), buckets.end(), [&](const GradientBucket& bucket) {
    return std::find(bucket.holds.begin(), bucket.holds.end(), &parameter) != bucket.holds.end();
  });
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

std::vector<OptimizerPiece> optimizer_pieces(const std::vector<Parameter>& parameters,
                                             const std::vector<GradientBucket>& buckets,
                                             const ReductionPlace& place) {
  std::vector<OptimizerPiece> pieces;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const GradientBucket& bucket = bucket_of(buckets, parameter);
    OptimizerPiece piece = place.strategy == DataStrategy::zero1
                               ? sharded_piece(bucket, parameter, place)
                               : whole_piece(bucket, parameter, place, i);
    if (parameter.spec.cut == TensorCut::none && place.tensor_rank != 0) {
      piece.counted = false;  // tensor rank 0 has the same
      piece.saved = false;
    }
    if (piece.range.count() > 0) {
      pieces.push_back(piece);
    }
  }
  return pieces;
}

}  // namespace slackline
