#include "parallel/sync/sync_validator.h"

#include <algorithm>
#include <map>
#include <set>

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

class Validator {
 public:
  Validator(const std::vector<SyncPlan>& plans, const ParallelConfig& parallel)
      : plans_(plans), parallel_(parallel), mesh_(make_mesh(parallel)) {}

  [[nodiscard]] std::vector<std::string> check() {
    check_order();
    if (found_.empty()) {
      for (int rank = 0; rank < mesh_.size(); ++rank) {
        for (std::size_t bucket = 0; bucket < plan(rank).buckets.size(); ++bucket) {
          check_sum(rank, bucket);
          check_slice(rank, bucket);
          check_weights(rank, bucket);
        }
      }
    }
    return std::move(found_);
  }

 private:
  // Ranks whose gradients of a bucket are in a sum, as often as they are.
  using Addends = std::multiset<int>;

  [[nodiscard]] const SyncPlan& plan(int rank) const {
    return plans_[static_cast<std::size_t>(rank)];
  }

  [[nodiscard]] std::vector<int> ends_of_pipeline(int rank) const {
    const std::vector<int> line = mesh_.line(rank, "pipeline");
    return {line.front(), line.back()};
  }

  // Returns them in the order of the group.
  [[nodiscard]] std::vector<int> members(int rank, SyncGroup group) const {
    switch (group) {
      case SyncGroup::tensor:
        return mesh_.line(rank, "tensor");
      case SyncGroup::data:
        return mesh_.line(rank, "data");
      case SyncGroup::group:
        return parallel_.num_groups() == 1 ? mesh_.line(rank, "data")
                                           : mesh_.line(rank, kGroupAxis);
      case SyncGroup::across_groups:
        return mesh_.line(rank, kAcrossGroupsAxis);
      case SyncGroup::table_pair:
        return ends_of_pipeline(rank);
      case SyncGroup::table:
        break;
    }
    std::vector<int> holders;
    for (const int replica : mesh_.line(rank, "data")) {
      const std::vector<int> ends = ends_of_pipeline(replica);
      holders.insert(holders.end(), ends.begin(), ends.end());
    }
    return holders;
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
      for (const SyncGroup group :
           {SyncGroup::tensor, SyncGroup::data, SyncGroup::table, SyncGroup::table_pair}) {
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

  // Returns what the bucket's first `num_ops` sums have added up.
  [[nodiscard]] Addends addends(int rank, std::size_t bucket, std::size_t num_ops) const {
    std::vector<const SyncOp*> sums;
    for (const SyncOp& op : plan(rank).ops) {
      if (op.bucket == bucket && op.state == SyncOp::State::gradients &&
          op.kind != SyncOp::Kind::all_gather) {
        sums.push_back(&op);
      }
    }
    num_ops = std::min(num_ops, sums.size());
    if (num_ops == 0) {
      return {rank};
    }
    Addends all;
    for (const int other : members(rank, sums[num_ops - 1]->group)) {
      const std::size_t theirs = same_bucket(plan(rank), bucket, plan(other));
      all.merge(addends(other, theirs, num_ops - 1));
    }
    return all;
  }

  // The ranks that make gradients of a bucket's parameters.
  [[nodiscard]] Addends makers(int rank, std::size_t bucket) const {
    const Kind kind = plan(rank).buckets[bucket].kind;
    Addends ranks;
    for (const int replica : mesh_.line(rank, "data")) {
      if (kind == Kind::table && parallel_.pipeline > 1) {
        for (const int end : ends_of_pipeline(replica)) {
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

  void check_sum(int rank, std::size_t bucket) {
    const Addends summed = addends(rank, bucket, plan(rank).ops.size());
    const Addends due = makers(rank, bucket);
    if (summed != due) {
      found_.push_back(fmt::format("rank {}, bucket {}: sums gradients of ranks {}, not {}",
                                   rank,
                                   bucket,
                                   text_of_numbers(summed),
                                   text_of_numbers(due)));
    }
  }

  // A rank reads gradients where it has their sum.
  void check_slice(int rank, std::size_t bucket) {
    const GradientBucket& held = plan(rank).buckets[bucket];
    Slice summed{0, held.count};
    for (const SyncOp& op : plan(rank).ops) {
      if (op.bucket != bucket || op.state != SyncOp::State::gradients) {
        continue;
      }
      if (op.kind == SyncOp::Kind::reduce_scatter) {
        summed = slice_of(held.count, op.rank, op.ranks);
      } else if (op.kind == SyncOp::Kind::all_gather) {
        summed = {0, held.count};
      }
    }
    const bool reads_others = std::ranges::any_of(plan(rank).owned, [&](const auto& piece) {
      const std::size_t first = piece.parameter->first_element - held.first;
      return std::ranges::find(held.holds, piece.parameter) != held.holds.end() &&
             (first + piece.range.begin < summed.begin || first + piece.range.end > summed.end);
    });
    if (reads_others) {
      found_.push_back(fmt::format(
          "rank {}, bucket {}: updates elements whose sum another rank has", rank, bucket));
    }
  }

  // Elements of the bucket that a rank updates, gaps between parameters apart.
  void add_updated(int rank, std::size_t bucket, std::map<std::size_t, int>& times) const {
    const GradientBucket& held = plan(rank).buckets[bucket];
    for (const OptimizerPiece& piece : plan(rank).owned) {
      if (std::ranges::find(held.holds, piece.parameter) == held.holds.end()) {
        continue;
      }
      const std::size_t first = piece.parameter->first_element - held.first;
      for (std::size_t i = piece.range.begin; i < piece.range.end; ++i) {
        ++times[first + i];
      }
    }
  }

  void check_weights(int rank, std::size_t bucket) {
    const SyncPlan& own = plan(rank);
    const auto gather = std::ranges::find_if(own.ops, [&](const SyncOp& op) {
      return op.bucket == bucket && op.state == SyncOp::State::weights;
    });
    std::map<std::size_t, int> times;
    const std::vector<int> sources =
        gather == own.ops.end() ? std::vector<int>{rank} : members(rank, gather->group);
    for (const int source : sources) {
      add_updated(source, same_bucket(own, bucket, plan(source)), times);
    }
    std::size_t held = 0;
    for (const Parameter* parameter : own.buckets[bucket].holds) {
      held += parameter->shard.shape.num_elements();
    }
    const bool once = std::ranges::all_of(times, [](const auto& row) { return row.second == 1; });
    if (times.size() != held || !once) {
      found_.push_back(
          fmt::format("rank {}, bucket {}: weights are not each updated by one of ranks {}",
                      rank,
                      bucket,
                      text_of_numbers(sources)));
    }
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
