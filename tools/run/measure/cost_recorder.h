#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/plan/step_costs.h"
#include "parallel/schedule/ops.h"
#include "parallel/step/groups.h"
#include "tools/run/measure/measured_steps.h"
#include "tools/run/measure/step_accounts.h"

namespace slackline {

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

  // Adds calls of codecs outside of steps, which count for settings that no step has used.
  void add_codecs_beside_steps(const std::vector<CodecTimes>& codecs);

  // Seconds of a whole step, counted as those of ops are.
  [[nodiscard]] double step_seconds() const { return step_seconds_.mean(); }

  // Costs of ops and codecs, with costs of parts for other layouts; on every rank. They are those
  // of the rank that took longest: a step waits for it. Blocks.
  [[nodiscard]] StepCosts costs();

 private:
  struct Sum {
    double seconds = 0.0;
    double count = 0.0;

    void add(double more_seconds, double more_count) {
      seconds += more_seconds;
      count += more_count;
    }

    // Adds a step's sum, or keeps the one with the smaller mean.
    void add_step(const Sum& step, bool keeps_quickest);

    // 0 where nothing was added: only one end of a boundary encodes.
    [[nodiscard]] double mean() const { return count == 0.0 ? 0.0 : seconds / count; }
  };

  // A codec's messages of one shape: its setting as JSON, shape and bytes, as they stand in a cost
  // file.
  struct CodecKey {
    std::string codec{};
    std::vector<std::int64_t> shape{};
    std::size_t sent_bytes = 0;

    friend bool operator<(const CodecKey& a, const CodecKey& b) {
      return std::tie(a.codec, a.shape, a.sent_bytes) < std::tie(b.codec, b.shape, b.sent_bytes);
    }
  };

  struct CodecSums {
    Sum encode{};
    Sum decode{};
  };

  using CodecTable = std::map<CodecKey, CodecSums>;
  using OpSums = std::map<std::pair<int, CostKind>, Sum>;

  void restart();
  [[nodiscard]] OpSums op_sums(const AccountedStep& step) const;
  static void add_codecs(const std::vector<CodecTimes>& codecs, CodecTable& table);
  [[nodiscard]] std::vector<CodecCost> codec_costs();
  // The tables of all ranks as one, with the longest of their means. Blocks.
  [[nodiscard]] CodecTable slowest_codecs(const CodecTable& own);

  MeshJob job_;
  int pipeline_rank_;
  Communicator* world_;
  Sum step_seconds_;
  OpSums ops_;
  CodecTable codecs_;
  CodecTable codecs_beside_steps_;
};

}  // namespace slackline
