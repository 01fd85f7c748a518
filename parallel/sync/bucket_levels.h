#pragma once

#include <cstddef>
#include <vector>

#include "parallel/sync/sync_groups.h"

namespace slackline {

// Says how a layout's ranks divide what they have of a bucket: between whom, in which steps, and
// what falls to this rank. The layout must outlive it.
class BucketLevels {
 public:
  explicit BucketLevels(const SyncLayout& layout) : layout_(&layout) {}

  // Norms and biases are whole everywhere, and updated like the rest. What is not trained belongs
  // to whoever keeps it.
  [[nodiscard]] DataStrategy strategy_of(const GradientBucket& bucket) const;

  // Whether two stages have to agree about it: what is not trained is the same on both.
  [[nodiscard]] bool is_on_two_stages(const GradientBucket& bucket) const;

  // Whether each stage's ranks update one half of it.
  [[nodiscard]] bool is_halved(const GradientBucket& bucket) const;

  // Whether all of its holders add it up at once.
  [[nodiscard]] bool is_joined(const GradientBucket& bucket) const;

  // All ranks that have to agree about it.
  [[nodiscard]] SyncGroup all_ranks(const GradientBucket& bucket) const;

  // Whether what data ranks exchange of it goes within their group first.
  [[nodiscard]] bool goes_by_levels(const GradientBucket& bucket) const;

  // Groups that ranks share out what they have with, one after another, to come from one extent to
  // a finer one.
  [[nodiscard]] std::vector<SyncGroup> steps(const GradientBucket& bucket,
                                             Extent from,
                                             Extent to) const;

  // Returns this rank's slice of a range that a group shares out.
  [[nodiscard]] Slice own_slice(Slice range, SyncGroup group) const;

  // Returns the parts of it that are each cut over ranks at once.
  [[nodiscard]] BucketShare segments(const GradientBucket& bucket) const;

  // Which of the segments this rank updates.
  [[nodiscard]] std::size_t own_segment(const GradientBucket& bucket) const;

  // This rank's elements of something with an extent.
  [[nodiscard]] BucketShare share_of(const GradientBucket& bucket, Extent extent) const;

  // Whether this rank has the first copy of a tied table on two stages.
  [[nodiscard]] bool is_first_copy() const { return layout_->place.pipeline == 0; }

 private:
  const SyncLayout* layout_;
};

}  // namespace slackline
