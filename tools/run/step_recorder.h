#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"
#include "parallel/plan/step_costs.h"
#include "parallel/predict/timeline/chrome_trace.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/wait_times.h"

namespace slackline {

// What the steps of a run took on this rank: op costs, and bars of a trace for a few steps. Used
// by the rank's thread.
class StepRecorder {
 public:
  StepRecorder(const MeshJob& job, const Groups& groups)
      : job_(job), pipeline_rank_(groups.pipeline_rank()), world_(groups.world) {}

  // Of several steps the mean counts; or of each stage's ops of a kind those of the step in which
  // they were quickest, which is what a few first steps tell.
  enum class Steps { mean, quickest };

  // Adds a step to the costs. Seconds that an op waited for transfers are not its cost: sums of
  // tensor ranks, and weights that zero1 gathers, are priced as transfers.
  void add(const MeshModel::StepTimes& times,
           const std::vector<Wait>& transfers,
           Steps steps = Steps::mean);

  // Adds calls of codecs outside of steps, which count for settings that no step has used.
  void add_codecs_beside_steps(const std::vector<CodecTimes>& codecs);

  // Adds a step to the trace: its ops and transfers, and on the track "step" its whole length.
  void trace(std::int64_t step,
             const MeshModel::StepTimes& times,
             const std::vector<Wait>& transfers);

  [[nodiscard]] std::int64_t num_steps() const { return num_steps_; }

  // Forgets the costs so far.
  void restart() {
    num_steps_ = 0;
    sums_.clear();
    codecs_.clear();
    codecs_beside_steps_.clear();
  }

  // Costs of ops and codecs, with costs of parts for other layouts; on every rank. Means over
  // steps, of the rank that took longest: a step waits for it. Blocks.
  [[nodiscard]] StepCosts costs();

  // The traces of all ranks as Chrome's JSON; on every rank. Blocks.
  [[nodiscard]] std::string trace_text();

 private:
  struct Sum {
    double seconds = 0.0;
    double count = 0.0;

    void add(double more_seconds, double more_count) {
      seconds += more_seconds;
      count += more_count;
    }

    // Nothing where nothing was added: only one end of a boundary encodes.
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

  // Of one step.
  [[nodiscard]] OpSums sums_of(const MeshModel::StepTimes& times,
                               const std::vector<Wait>& transfers) const;

  static void add_codecs(const std::vector<CodecTimes>& codecs, CodecTable& table);
  [[nodiscard]] std::vector<CodecCost> codec_costs();
  // That of every rank, with the longest of their means. Blocks.
  [[nodiscard]] CodecTable slowest_codecs(const CodecTable& own);

  MeshJob job_;
  int pipeline_rank_;
  Communicator* world_;
  std::int64_t num_steps_ = 0;
  OpSums sums_;
  CodecTable codecs_;
  CodecTable codecs_beside_steps_;
  std::vector<schedule::TraceBar> bars_;
};

}  // namespace slackline
