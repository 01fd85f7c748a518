#include "parallel/sync/arriving_bytes.h"

#include <map>
#include <vector>

#include "core/comm/engine/sum_scratch.h"

namespace slackline {

namespace {

using Begin = SyncOp::Begin;
using Unit = GradientBucket::Unit;

// Walks through a rank's steps as the executor does.
class StepWalk {
 public:
  StepWalk(const SyncPlan& plan, const CallsOf& calls_of, std::size_t longest_message)
      : plan_(plan), scratch_(longest_message) {
    for (const SyncOp& op : plan.ops) {
      if (op.kind == SyncOp::Kind::all_gather) {
        continue;
      }
      for (const CollectiveCall& call : calls_of(op)) {
        sums_of(op).push_back({.bucket = op.bucket,
                               .group = static_cast<int>(op.group),
                               .bytes = {.tensor = call.elements * call.element_size,
                                         .received = scratch_bytes_of(call, op.rank, op.ranks)}});
      }
    }
  }

  std::size_t bytes() {
    // Blocks of the first micro-batch's sums serve the second one's again.
    pass(false);
    pass(true);
    for (const auto& [slot, sum] : in_slots_) {
      scratch_.end(sum.id);
    }
    for (const Sum& sum : at_end_) {
      begin(sum);
    }
    return scratch_.bytes();
  }

 private:
  struct Sum {
    std::size_t bucket = 0;
    int group = 0;
    SumBytes bytes{};
  };

  struct Begun {
    std::size_t bucket = 0;
    SumScratch::Sum id = 0;
  };

  using Sums = std::map<Unit, std::vector<Sum>>;

  std::vector<Sum>& sums_of(const SyncOp& op) {
    switch (op.begin) {
      case Begin::pass_made:
        return of_passes_[*op.unit];
      case Begin::gradients_made:
        return of_last_pass_[*op.unit];
      default:
        return at_end_;
    }
  }

  void pass(bool last) {
    for (const Unit& unit : plan_.made) {
      for (const Sum& sum : of_passes_[unit]) {
        begin_after(in_slots_, *plan_.places[sum.bucket].gradient_slot, sum);
      }
      if (last) {
        for (const Sum& sum : of_last_pass_[unit]) {
          begin(sum);
        }
      }
    }
  }

  // Begins a sum at the step's end, before which the bucket's sum of the last pass has ended.
  void begin(const Sum& sum) {
    if (const auto slot = plan_.places[sum.bucket].gradient_slot) {
      const auto in_slot = in_slots_.find(*slot);
      if (in_slot != in_slots_.end() && in_slot->second.bucket == sum.bucket) {
        scratch_.end(in_slot->second.id);
      }
    }
    begin_after(of_buckets_, sum.bucket, sum);
  }

  // Begins a sum when the one before it at its place in the list has ended.
  void begin_after(std::map<std::size_t, Begun>& list, std::size_t place, const Sum& sum) {
    if (const auto before = list.find(place); before != list.end()) {
      scratch_.end(before->second.id);
    }
    list[place] = {.bucket = sum.bucket, .id = scratch_.begin(sum.group, sum.bytes)};
  }

  const SyncPlan& plan_;
  SumScratch scratch_;
  Sums of_passes_{};
  Sums of_last_pass_{};
  std::vector<Sum> at_end_{};
  std::map<std::size_t, Begun> in_slots_{};
  std::map<std::size_t, Begun> of_buckets_{};
};

}  // namespace

std::size_t arriving_bytes(const SyncPlan& plan,
                           const CallsOf& calls_of,
                           std::size_t longest_message) {
  return StepWalk(plan, calls_of, longest_message).bytes();
}

}  // namespace slackline
