#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/collective_bytes.h"
#include "core/comm/communicator.h"
#include "core/comm/hierarchy.h"
#include "model/parameters.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/schedule/transfer_class.h"
#include "parallel/sync/gradient_buckets.h"

namespace slackline {

// The ranks that a rank adds or gathers with.
enum class SyncGroup {
  tensor,
  data,
  group,          // data ranks of one group
  across_groups,  // data ranks at one place of every group
  table,          // the holders of one part of a tied table that stands on two stages
  table_pair,     // the two of them that belong to one pipeline
};

// One collective of a step over tensor or data ranks.
struct SyncOp {
  enum class Kind { all_reduce, reduce_scatter, all_gather };
  enum class State { gradients, weights };

  // When a rank submits it.
  enum class Begin {
    before_use,  // of the bucket's weights, in every pass that reads them
    pass_made,   // gradients of the bucket, in every pass that makes some
    // The passes of the last micro-batch make those of the bucket; where passes have added them up
    // in a group, which takes a while, and between sums that follow each other, a unit later.
    gradients_made,
    passes_end,
    update_end,
  };

  // Which of a rank's memory it works in: of all of the bucket's elements, or of the rank's share
  // of them, which follow one another there.
  enum class Memory { whole, share };

  Kind kind{};
  State state{};
  SyncGroup group{};
  int ranks = 1;  // of the group
  int rank = 0;   // this one
  std::size_t bucket = 0;
  Memory memory{};
  Slice range{};  // elements of that memory
  SumOrder order{};
  Hierarchy hierarchy{};  // of the group: how the op goes, and which ranks stand together
  Begin begin{};
  std::optional<GradientBucket::Unit> unit{};        // gradients_made: when it has been made
  std::optional<schedule::TransferClass> members{};  // none: it competes for no compression

  // This sum goes furthest of those that the bucket's gradients go through: over all data ranks, or
  // between groups. It alone may be coded.
  bool may_be_coded = false;
};

// What one rank's optimizer updates of one parameter: all elements of its local tensor, or those
// that fall to this rank where updates are shared out. Of a parameter that is not trained, what the
// rank keeps.
struct OptimizerPiece {
  const Parameter* parameter = nullptr;
  Slice range{};         // elements of the local tensor
  bool counted = false;  // enters the global gradient norm here: once per element over all ranks
  bool saved = false;    // enters checkpoints here: likewise
  // Data ranks that update the same elements, which of them this is, and whether another tensor
  // rank or stage has the elements too, and counts them.
  int twins = 1;
  int twin = 0;
  bool is_copy = false;
};

// Elements of a bucket that a rank has of something that data ranks share out, in the order in
// which they follow one another in its memory. A tied table on two stages is cut into halves first,
// one for each stage's ranks to update; so it has two slices, where others have one.
using BucketShare = std::vector<Slice>;

// Where a bucket's weights, gradients and masters lie on a rank.
struct BucketPlace {
  BucketShare weights{};
  BucketShare gradients{};
  BucketShare owned{};  // what this rank updates, or keeps of what is not trained
  // Whether a pass works on whole weights, or gradients, in a slot that it shares with others.
  std::optional<std::size_t> weight_slot{};
  std::optional<std::size_t> gradient_slot{};
};

// What one rank adds and gathers with others in a step, made before the run by pure functions: the
// executor submits this list and no other. A bucket's ops follow one another, each when the one
// before has ended; sums, and gathers of them, end with the passes, those of weights before the
// weights are used. Ops of passes stand once, for all of them.
struct SyncPlan {
  std::vector<GradientBucket> buckets{};
  std::vector<BucketPlace> places{};  // of buckets
  // Units in the order in which a step's passes read their weights, and an evaluation's.
  std::vector<GradientBucket::Unit> used{};
  std::vector<GradientBucket::Unit> used_in_evaluation{};
  std::vector<GradientBucket::Unit> made{};  // as the last micro-batch's passes make gradients
  std::vector<SyncOp> ops{};                 // as they are submitted
  std::vector<OptimizerPiece> owned{};       // in the order of parameters
  DType compute = DType::f32;                // of gathered weights, where memory is shared
};

// The plan of a rank whose parameters these are: it points into them. One generator makes all
// strategies: reductions step down from all of a bucket to a group's share and a rank's, gathers
// step up again.
[[nodiscard]] SyncPlan make_sync_plan(const std::vector<Parameter>& parameters,
                                      const RankPlan& rank);

// The class that a parameter's gradient is of: its virtual stage's, and of the tail if the bucket
// ends with that stage's last backward pass. REQUIRES: the bucket holds it.
[[nodiscard]] schedule::TransferClass gradient_class(const Parameter& parameter,
                                                     const GradientBucket& bucket,
                                                     const RankPlan& rank);

// The call that an op is without a codec.
[[nodiscard]] CollectiveCall plain_call(const SyncOp& op, const SyncPlan& plan);

// What a bucket's weights travel in: as passes read them, but norms and biases in f32.
[[nodiscard]] DType weight_type(const GradientBucket& bucket, const SyncPlan& plan);

// How often a step runs an op.
[[nodiscard]] std::size_t times_of(const SyncOp& op, const SyncPlan& plan, int num_micro_batches);

[[nodiscard]] std::size_t elements_of(const BucketShare& share);

// Norms and biases, which are f32 and whole on every rank.
[[nodiscard]] bool is_vectors(GradientBucket::Kind kind);

// The axis that counts an op's bytes, in kReportedAxes.
[[nodiscard]] std::size_t axis_of(SyncGroup group);

// "reduce_scatter of gradients over data: bucket 2, when layer 3 is made"
[[nodiscard]] std::string text_of(const SyncOp& op);

}  // namespace slackline
