#include "parallel/sync/bucket_levels.h"

namespace slackline {

DataStrategy BucketLevels::strategy_of(const GradientBucket& bucket) const {
  const Extent parameters = is_vectors(bucket.kind) ? Extent::none : layout_->strategy.parameters;
  if (!bucket.trained) {
    return {.parameters = parameters, .optimizer = parameters};
  }
  return is_vectors(bucket.kind) ? DataStrategy{.optimizer = layout_->strategy.optimizer}
                                 : layout_->strategy;
}

bool BucketLevels::is_on_two_stages(const GradientBucket& bucket) const {
  return bucket.kind == GradientBucket::Kind::table && layout_->table_on_two_stages &&
         bucket.trained;
}

bool BucketLevels::is_halved(const GradientBucket& bucket) const {
  return is_on_two_stages(bucket) && layout_->strategy.has_steps();
}

bool BucketLevels::is_joined(const GradientBucket& bucket) const {
  return is_on_two_stages(bucket) && !is_halved(bucket) &&
         layout_->embedding_sync == EmbeddingSync::fused;
}

SyncGroup BucketLevels::all_ranks(const GradientBucket& bucket) const {
  return is_joined(bucket) ? SyncGroup::table : SyncGroup::data;
}

// Vectors stay out: no codec sits on them, and they would take exchanges more for nothing.
bool BucketLevels::goes_by_levels(const GradientBucket& bucket) const {
  return layout_->strategy.has_groups() ||
         (layout_->by_levels && !is_joined(bucket) && !is_vectors(bucket.kind));
}

std::vector<SyncGroup> BucketLevels::steps(const GradientBucket& bucket,
                                           Extent from,
                                           Extent to) const {
  if (!goes_by_levels(bucket)) {
    return from == to ? std::vector<SyncGroup>() : std::vector<SyncGroup>{all_ranks(bucket)};
  }
  std::vector<SyncGroup> groups;
  if (from == Extent::none && to != Extent::none) {
    groups.push_back(SyncGroup::group);
  }
  if (from != Extent::global && to == Extent::global) {
    groups.push_back(SyncGroup::across_groups);
  }
  return groups;
}

Slice BucketLevels::own_slice(Slice range, SyncGroup group) const {
  const Seat seat = seat_in(group, *layout_);
  return slice_of(range, seat.rank, seat.ranks);
}

BucketShare BucketLevels::segments(const GradientBucket& bucket) const {
  if (!is_halved(bucket)) {
    return {{0, bucket.count}};
  }
  return {slice_of(bucket.count, 0, 2), slice_of(bucket.count, 1, 2)};
}

std::size_t BucketLevels::own_segment(const GradientBucket& bucket) const {
  return is_halved(bucket) && !is_first_copy() ? 1 : 0;
}

BucketShare BucketLevels::share_of(const GradientBucket& bucket, Extent extent) const {
  BucketShare share = segments(bucket);
  for (Slice& range : share) {
    for (const SyncGroup group : steps(bucket, Extent::none, extent)) {
      range = own_slice(range, group);
    }
  }
  return share;
}

}  // namespace slackline
