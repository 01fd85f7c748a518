#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/collective_bytes.h"
#include "core/comm/communicator.h"
#include "model/parameters.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/plan/transfer_class.h"
#include "parallel/sync/gradient_buckets.h"

namespace slackline {

// The ranks that a rank adds or gathers with.
enum class SyncGroup {
  tensor,
  data,
  table,       // the holders of one part of a tied table that stands on two stages
  table_pair,  // the two of them that belong to one pipeline
};

// One collective of a step over tensor or data ranks.
struct SyncOp {
  enum class Kind { all_reduce, reduce_scatter, all_gather };
  enum class State { gradients, weights };

  // When a rank submits it.
  enum class Begin {
    gradients_made,  // of the bucket, in the passes of the last micro-batch
    passes_end,
    update_end,
  };

  Kind kind{};
  State state{};
  SyncGroup group{};
  int ranks = 1;  // of the group
  int rank = 0;   // this one
  std::size_t bucket = 0;
  SumOrder order{};
  Begin begin{};
  std::optional<GradientBucket::Unit> unit{};        // gradients_made: by which all are there
  std::optional<schedule::TransferClass> members{};  // none: it competes for no compression

  // The last sum of a bucket's gradients, by which they are whole: it alone may be coded.
  [[nodiscard]] bool is_last_sum() const {
    return state == State::gradients && kind != Kind::all_gather &&
           (group == SyncGroup::data || group == SyncGroup::table);
  }

  friend bool operator==(const SyncOp&, const SyncOp&) = default;
};

// What one rank's optimizer updates of one parameter: all elements of its local tensor, or those
// that fall to this rank under zero1.
struct OptimizerPiece {
  const Parameter* parameter = nullptr;
  Slice range{};         // elements of the local tensor
  bool counted = false;  // enters the global gradient norm here: once per element over all ranks
  bool saved = false;    // enters checkpoints here: likewise
};

// What one rank adds and gathers with others in a step, made before the run by pure functions: the
// executor submits this list and no other. A bucket's ops follow one another, each when the one
// before has ended; sums, and gathers of them, end with the passes, those of weights before the
// weights are used.
struct SyncPlan {
  std::vector<GradientBucket> buckets{};
  std::vector<GradientBucket::Unit> made{};  // as the last micro-batch's passes make gradients
  std::vector<SyncOp> ops{};                 // as they are submitted
  std::vector<OptimizerPiece> owned{};       // in the order of parameters
};

// The plan of a rank whose parameters these are: it points into them. `replicate` and `zero1` are
// two generators of ops and pieces.
[[nodiscard]] SyncPlan make_sync_plan(const std::vector<Parameter>& parameters,
                                      const RankPlan& rank);

// The class that a parameter's gradient is of: its virtual stage's, and of the tail if the bucket
// ends with that stage's last backward pass. REQUIRES: the bucket holds it.
[[nodiscard]] schedule::TransferClass class_of(const Parameter& parameter,
                                               const GradientBucket& bucket,
                                               const RankPlan& rank);

// The call that an op is without a codec.
[[nodiscard]] CollectiveCall plain_call(const SyncOp& op, const SyncPlan& plan);

// The axis that counts an op's bytes, in kReportedAxes.
[[nodiscard]] std::size_t axis_of(SyncGroup group);

// "reduce_scatter of gradients over data: bucket 2, when layer 3 is made"
[[nodiscard]] std::string text_of(const SyncOp& op);

}  // namespace slackline
