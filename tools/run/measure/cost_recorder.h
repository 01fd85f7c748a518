#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "compress/codec_times.h"
#include "core/comm/communicator.h"
#include "parallel/channel/measured_codecs.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/plan/step_costs.h"
#include "parallel/schedule/ops.h"
#include "parallel/step/groups.h"
#include "tools/run/measure/step_accounts.h"

namespace slackline {

// Steps of a run whose costs are measured together.
struct MeasuredSteps {
  std::int64_t first = 0;
  std::int64_t last = 0;
  // A plan is chosen by the costs as soon as `last` has ended, and holds from the next step on;
  // otherwise it is chosen when `last` is reported, and holds from kStepsToChange steps after it.
  bool at_once = false;

  [[nodiscard]] bool has(std::int64_t step) const { return first <= step && step <= last; }
};

// The kind of cost that a pass has. REQUIRES: the op computes.
[[nodiscard]] CostKind cost_kind(schedule::OpKind kind);

// Records on each rank what ops and codecs of measured steps take, and adds it up to the costs of
// the run. Every rank has one and calls alike.
class CostRecorder {
 public:
  CostRecorder(const MeshJob& job, const Groups& groups)
      : job_(job), pipeline_rank_(groups.pipeline_rank()), world_(groups.world) {}

  // Adds a step if it is one of `measured`, whose first one forgets all costs so far. Returns
  // whether it was the last one, so that the costs are complete.
  //
  // The mean over steps counts; of steps for a plan at once, which are few, those count in which
  // each stage's ops of a kind were quickest. Seconds that an op waited for transfers are not its
  // cost: sums of tensor ranks, and weights that zero1 gathers, are priced as transfers.
  [[nodiscard]] bool add(const AccountedStep& step, const MeasuredSteps& measured);

  [[nodiscard]] MeasuredCodecs& codecs() { return codecs_; }

  // Seconds of a whole step, counted as those of ops are.
  [[nodiscard]] double step_seconds() const { return step_seconds_.mean(); }

  // Costs of ops and codecs, with costs of parts for other layouts; on every rank. They are those
  // of the rank that took longest: a step waits for it. Blocks.
  [[nodiscard]] StepCosts costs();

 private:
  using OpSums = std::map<std::pair<int, CostKind>, CallTimes>;  // of a stage's ops of a kind

  [[nodiscard]] OpSums op_sums(const AccountedStep& step) const;

  MeshJob job_;
  int pipeline_rank_;
  Communicator* world_;
  CallTimes step_seconds_;
  OpSums ops_;
  MeasuredCodecs codecs_;
};

}  // namespace slackline
