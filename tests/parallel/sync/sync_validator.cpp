#include "tests/parallel/sync/sync_validator.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "parallel/mesh/mesh.h"

namespace slackline {

namespace {

using Kind = GradientBucket::Kind;

template <typename Numbers>
std::string text_of_numbers(const Numbers& numbers) {
  std::string text;
  for (const int number : numbers) {
    text += fmt::format("{}{}", text.empty() ? "" : " ", number);
  }
  return text;
}

// What is known of one element on one rank: the ranks whose gradients are added up in it, as often
// as they are, or the ranks whose update it is. None: undefined.
using Content = std::optional<std::multiset<int>>;

class Validator {
 public:
  Validator(const std::vector<SyncPlan>& plans, const ParallelConfig& parallel)
      : plans_(plans), parallel_(parallel), mesh_(make_mesh(parallel)) {}

  [[nodiscard]] std::vector<std::string> check() {
    check_order();
    if (found_.empty()) {
      for (int rank = 0; rank < mesh_.size(); ++rank) {
        for (std::size_t bucket = 0; bucket < plan(rank).buckets.size(); ++bucket) {
          check_bucket(rank, bucket);
        }
      }
    }
    return std::move(found_);
  }

 private:
  // Follows one element of a bucket through the ops of all ranks.
  class Trace {
   public:
    Trace(const Validator& all, std::size_t element) : all_(all), element_(element) {}

    // What a rank has of it after the first `num_ops` of these ops of its list.
    [[nodiscard]] Content content(int rank,
                                  std::size_t bucket,
                                  const std::vector<SyncOp>& ops,
                                  std::size_t num_ops) {
      num_ops = std::min(num_ops, ops.size());
      if (num_ops == 0) {
        return begin(rank, bucket, ops);
      }
      const auto [known, is_new] = known_.try_emplace({rank, num_ops});
      if (is_new) {
        Content content = after(rank, bucket, ops, num_ops);
        known_[{rank, num_ops}] = std::move(content);
      }
      return known_[{rank, num_ops}];
    }

   private:
    // Its gradients are its own; its weights are those that it updates.
    [[nodiscard]] Content begin(int rank,
                                std::size_t bucket,
                                const std::vector<SyncOp>& ops) const {
      const SyncPlan& plan = all_.plan(rank);
      if (!ops.empty() && ops.front().state == SyncOp::State::gradients) {
        return std::multiset<int>{rank};
      }
      std::multiset<int> updates;
      for (const OptimizerPiece& piece : plan.owned) {
        if (updates_it(piece, plan.buckets[bucket])) {
          updates.insert(rank);
        }
      }
      return updates.empty() ? Content() : updates;
    }

    [[nodiscard]] bool updates_it(const OptimizerPiece& piece, const GradientBucket& held) const {
      const std::size_t first = piece.parameter->first_element - held.first;
      return std::ranges::find(held.holds, piece.parameter) != held.holds.end() &&
             first + piece.range.begin <= element_ && element_ < first + piece.range.end;
    }

    [[nodiscard]] Content after(int rank,
                                std::size_t bucket,
                                const std::vector<SyncOp>& ops,
                                std::size_t num_ops) {
      const SyncOp& op = ops[num_ops - 1];
      const std::optional<std::size_t> place = place_in(rank, bucket, op);
      if (!place) {
        return content(rank, bucket, ops, num_ops - 1);
      }
      const std::vector<int> ranks = all_.members(rank, op.group);
      const auto has_it = [&](std::size_t member) {
        const Slice slice = slice_of(op.range.count(), static_cast<int>(member), op.ranks);
        return slice.begin <= *place && *place < slice.end;
      };
      if (op.kind == SyncOp::Kind::reduce_scatter && !has_it(static_cast<std::size_t>(op.rank))) {
        return std::nullopt;
      }
      std::multiset<int> all;
      for (std::size_t member = 0; member < ranks.size(); ++member) {
        if (op.kind == SyncOp::Kind::all_gather && !has_it(member)) {
          continue;
        }
        const int other = ranks[member];
        const std::size_t theirs = same_bucket(all_.plan(rank), bucket, all_.plan(other));
        Content part =
            content(other, theirs, all_.ops_like(other, theirs, ops.front()), num_ops - 1);
        if (!part) {
          return std::nullopt;
        }
        all.merge(*part);
      }
      return all;
    }

    // Where it stands in what an op works on; none where it is not there.
    [[nodiscard]] std::optional<std::size_t> place_in(int rank,
                                                      std::size_t bucket,
                                                      const SyncOp& op) const {
      std::size_t place = element_;
      if (op.memory == SyncOp::Memory::share) {
        const BucketPlace& held = all_.plan(rank).places[bucket];
        const BucketShare& share =
            op.state == SyncOp::State::weights ? held.weights : held.gradients;
        std::size_t before = 0;
        const auto range = std::ranges::find_if(share, [&](const Slice& slice) {
          const bool inside = slice.begin <= element_ && element_ < slice.end;
          place = before + element_ - slice.begin;
          before += slice.count();
          return inside;
        });
        if (range == share.end()) {
          return std::nullopt;
        }
      }
      return op.range.begin <= place && place < op.range.end
                 ? std::make_optional(place - op.range.begin)
                 : std::nullopt;
    }

    const Validator& all_;
    std::size_t element_;
    std::map<std::pair<int, std::size_t>, Content> known_{};
  };

  [[nodiscard]] const SyncPlan& plan(int rank) const {
    return plans_[static_cast<std::size_t>(rank)];
  }

  // Returns them in the order of the group.
  [[nodiscard]] std::vector<int> members(int rank, SyncGroup group) const {
    switch (group) {
      case SyncGroup::tensor:
        return mesh_.line(rank, "tensor");
      case SyncGroup::data:
        return mesh_.line(rank, "data");
      case SyncGroup::group:
        return mesh_.line(rank, parallel_.num_groups() == 1 ? "data" : kGroupAxis);
      case SyncGroup::across_groups:
        return mesh_.line(rank, kAcrossGroupsAxis);
      case SyncGroup::table_pair:
        return ends_of_pipeline(mesh_, rank);
      case SyncGroup::table:
        break;
    }
    return table_holders(mesh_, rank);
  }

  // What a rank submits to a group of its own, with what members have to agree on.
  [[nodiscard]] std::string submitted(int rank, SyncGroup group) const {
    std::string calls;
    for (const SyncOp& op : plan(rank).ops) {
      if (op.group == group) {
        const CollectiveCall call = plain_call(op, plan(rank));
        const bool table = plan(rank).buckets[op.bucket].kind == Kind::table;
        calls += fmt::format("{}{} of {} elements of {}",
                             calls.empty() ? "" : ", ",
                             name_of(call.kind),
                             call.elements,
                             table ? "the table" : fmt::format("bucket {}", op.bucket));
      }
    }
    return calls;
  }

  void check_order() {
    for (int rank = 0; rank < mesh_.size(); ++rank) {
      for (const SyncGroup group : {SyncGroup::tensor,
                                    SyncGroup::data,
                                    SyncGroup::group,
                                    SyncGroup::across_groups,
                                    SyncGroup::table,
                                    SyncGroup::table_pair}) {
        const std::string own = submitted(rank, group);
        if (own.empty()) {
          continue;
        }
        for (const int other : members(rank, group)) {
          if (submitted(other, group) != own) {
            found_.push_back(
                fmt::format("ranks {} and {} of one group submit different collectives: {} and {}",
                            rank,
                            other,
                            own,
                            submitted(other, group)));
          }
        }
      }
    }
  }

  // The bucket of another rank of a group of this one's: they have the same in the same order, and
  // of a tied table each has one.
  [[nodiscard]] static std::size_t same_bucket(const SyncPlan& own,
                                               std::size_t bucket,
                                               const SyncPlan& other) {
    if (own.buckets[bucket].kind != Kind::table) {
      return bucket;
    }
    const auto table = std::ranges::find_if(other.buckets, [](const GradientBucket& candidate) {
      return candidate.kind == Kind::table;
    });
    return static_cast<std::size_t>(table - other.buckets.begin());
  }

  // The ops of a bucket that a step runs one after another with `first`: its sums, its gathers
  // before a use, or those after an update. Of the sums of passes one unit's stand for all.
  [[nodiscard]] std::vector<SyncOp> ops_like(int rank,
                                             std::size_t bucket,
                                             const SyncOp& first) const {
    using Begin = SyncOp::Begin;
    std::vector<SyncOp> ops;
    std::optional<GradientBucket::Unit> unit;
    for (const SyncOp& op : plan(rank).ops) {
      const bool same_end = (op.begin == Begin::before_use) == (first.begin == Begin::before_use);
      if (op.bucket != bucket || op.state != first.state || !same_end) {
        continue;
      }
      if (op.begin == Begin::before_use || op.begin == Begin::pass_made) {
        unit = unit.value_or(*op.unit);
        if (op.unit != unit) {
          continue;
        }
      }
      ops.push_back(op);
    }
    return ops;
  }

  // The ranks that make gradients of a bucket's parameters.
  [[nodiscard]] std::multiset<int> makers(int rank, std::size_t bucket) const {
    const Kind kind = plan(rank).buckets[bucket].kind;
    std::multiset<int> ranks;
    for (const int replica : mesh_.line(rank, "data")) {
      if (kind == Kind::table && parallel_.pipeline > 1) {
        for (const int end : ends_of_pipeline(mesh_, replica)) {
          ranks.insert(end);
        }
      } else if (kind == Kind::norms && parallel_.sequence_parallel) {
        for (const int part : mesh_.line(replica, "tensor")) {
          ranks.insert(part);
        }
      } else {
        ranks.insert(replica);
      }
    }
    return ranks;
  }

  // Elements of the bucket between which no rank tells a difference: the first of each run, gaps
  // between parameters apart.
  [[nodiscard]] std::vector<std::size_t> elements_to_check(int rank, std::size_t bucket) const {
    const GradientBucket& held = plan(rank).buckets[bucket];
    std::set<std::size_t> cuts;
    for (int other = 0; other < mesh_.size(); ++other) {
      const SyncPlan& theirs = plan(other);
      const std::size_t same = same_bucket(plan(rank), bucket, theirs);
      if (same >= theirs.buckets.size()) {
        continue;
      }
      const BucketPlace& place = theirs.places[same];
      for (const BucketShare* share : {&place.weights, &place.gradients, &place.owned}) {
        for (const Slice& range : *share) {
          cuts.insert({range.begin, range.end});
        }
      }
      for (const SyncOp& op : theirs.ops) {
        for (int member = 0; op.bucket == same && member < op.ranks; ++member) {
          const Slice slice = slice_of(op.range.count(), member, op.ranks);
          cuts.insert({op.range.begin + slice.begin, op.range.begin + slice.end});
        }
      }
      for (const OptimizerPiece& piece : theirs.owned) {
        if (std::ranges::find(theirs.buckets[same].holds, piece.parameter) !=
            theirs.buckets[same].holds.end()) {
          const std::size_t first = piece.parameter->first_element - theirs.buckets[same].first;
          cuts.insert({first + piece.range.begin, first + piece.range.end});
        }
      }
    }
    std::vector<std::size_t> elements;
    for (const Parameter* parameter : held.holds) {
      const std::size_t first = parameter->first_element - held.first;
      const std::size_t end = first + parameter->shard.shape.num_elements();
      elements.push_back(first);
      for (const std::size_t cut : cuts) {
        if (first < cut && cut < end) {
          elements.push_back(cut);
        }
      }
    }
    return elements;
  }

  void check_bucket(int rank, std::size_t bucket) {
    for (const std::size_t element : elements_to_check(rank, bucket)) {
      const std::size_t before = found_.size();
      check_sum(rank, bucket, element);
      check_weights(rank, bucket, element);
      if (found_.size() > before) {
        return;  // one element tells enough
      }
    }
  }

  [[nodiscard]] Content content_at_end(int rank,
                                       std::size_t bucket,
                                       std::size_t element,
                                       const SyncOp& like) const {
    const std::vector<SyncOp> ops = ops_like(rank, bucket, like);
    Trace trace(*this, element);
    return ops.empty() ? trace.content(rank, bucket, {like}, 0)
                       : trace.content(rank, bucket, ops, ops.size());
  }

  // What a rank updates is the sum of what all makers made.
  void check_sum(int rank, std::size_t bucket, std::size_t element) {
    if (!plan(rank).buckets[bucket].trained) {
      return;
    }
    const SyncOp weights{.state = SyncOp::State::weights, .begin = SyncOp::Begin::update_end};
    if (!Trace(*this, element).content(rank, bucket, {weights}, 0)) {
      return;  // another rank updates it
    }
    const SyncOp sums{.begin = SyncOp::Begin::passes_end};
    const Content summed = content_at_end(rank, bucket, element, sums);
    const std::multiset<int> due = makers(rank, bucket);
    if (!summed) {
      found_.push_back(fmt::format(
          "rank {}, bucket {}: updates elements whose sum another rank has", rank, bucket));
    } else if (*summed != due) {
      found_.push_back(fmt::format("rank {}, bucket {}: sums gradients of ranks {}, not {}",
                                   rank,
                                   bucket,
                                   text_of_numbers(*summed),
                                   text_of_numbers(due)));
    }
  }

  // What a rank keeps of the weights, and what its passes read, is one rank's update.
  void check_weights(int rank, std::size_t bucket, std::size_t element) {
    const SyncOp kept{.state = SyncOp::State::weights, .begin = SyncOp::Begin::update_end};
    const BucketShare& share = plan(rank).places[bucket].weights;
    const bool is_kept = std::ranges::any_of(
        share, [&](const Slice& range) { return range.begin <= element && element < range.end; });
    const Content update = content_at_end(rank, bucket, element, kept);
    if ((is_kept && (!update || update->size() != 1)) || !reaches(rank, bucket, element)) {
      found_.push_back(fmt::format(
          "rank {}, bucket {}: weights are not each updated by one rank", rank, bucket));
    }
  }

  // Whether gathers before a use bring an element from a rank that keeps it.
  [[nodiscard]] bool reaches(int rank, std::size_t bucket, std::size_t element) const {
    if (!plan(rank).places[bucket].weight_slot) {
      return true;
    }
    const SyncOp used{.state = SyncOp::State::weights, .begin = SyncOp::Begin::before_use};
    std::set<int> sources{rank};
    for (std::size_t i = ops_like(rank, bucket, used).size(); i-- > 0;) {
      std::set<int> before;
      for (const int source : sources) {
        const std::size_t theirs = same_bucket(plan(rank), bucket, plan(source));
        before.insert(source_of(source, ops_like(source, theirs, used)[i], element));
      }
      sources = std::move(before);
    }
    return std::ranges::any_of(sources, [&](int source) {
      const BucketShare& share =
          plan(source).places[same_bucket(plan(rank), bucket, plan(source))].weights;
      return std::ranges::any_of(
          share, [&](const Slice& range) { return range.begin <= element && element < range.end; });
    });
  }

  // The rank that a gather brings an element from; the rank itself where it brings it from none.
  [[nodiscard]] int source_of(int rank, const SyncOp& op, std::size_t element) const {
    const std::vector<int> ranks = members(rank, op.group);
    for (std::size_t member = 0; member < ranks.size(); ++member) {
      const Slice slice = slice_of(op.range.count(), static_cast<int>(member), op.ranks);
      if (op.range.begin + slice.begin <= element && element < op.range.begin + slice.end) {
        return ranks[member];
      }
    }
    return rank;
  }

  const std::vector<SyncPlan>& plans_;
  const ParallelConfig& parallel_;
  Mesh mesh_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> violations(const std::vector<SyncPlan>& plans,
                                    const ParallelConfig& parallel) {
  return Validator(plans, parallel).check();
}

}  // namespace slackline
