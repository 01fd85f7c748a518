#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/comm/communicator.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/round_travel.h"
#include "parallel/step/wait_times.h"
#include "tools/config/train_config.h"
#include "tools/record/metrics.h"

namespace slackline {

// A step whose accounts are complete.
struct AccountedStep {
  StepRecord record{};            // the same on every rank
  MeshModel::StepTimes times{};   // of this rank
  std::vector<Wait> transfers{};  // those that this rank waited for
  RoundTravels rounds{};          // of the outer round that ended with it, on this rank
  std::int64_t next_step = 0;     // one that had not begun when this was handed out
};

// The accounts of a run's steps: their seconds and what these were spent on, the bytes of each
// axis, and what compression lost in sampled steps. Every rank has one and calls alike.
//
// What ranks tell each other for that travels beside the next steps, so that slow links cost no
// step their latency: a step is handed out two steps later, or by flush().
class StepAccounts {
 public:
  // Config, model and groups must outlive it.
  StepAccounts(const TrainConfig& config, MeshModel& model, Groups& groups);

  void begin_step();

  // Ends the step. Its record lacks only what is accounted here: the seconds since begin_step(),
  // the axes, the compression and how its outer round travelled, by this rank's `rounds`. Hands out
  // the step two before it, unless flush() has. Blocks until the other ranks have told of that one.
  [[nodiscard]] std::optional<AccountedStep> end_step(const StepRecord& record,
                                                      const RoundTravels& rounds);

  // Hands out all other steps that have ended, in order. Blocks.
  [[nodiscard]] std::vector<AccountedStep> flush();

 private:
  using Clock = std::chrono::steady_clock;

  // A step that has ended and is not handed out.
  struct Ended {
    AccountedStep step{};
    double own_seconds = 0.0;
    std::optional<StepSamples> samples{};
    std::vector<double> sums{};  // over ranks, once `sum` has ended
    Transfer sum{};
  };

  // Begins to sum the accounts of the step that ended last over ranks. Blocks until its waits are
  // known.
  void add_up(Ended& ended);
  // Blocks until its sums are known. REQUIRES: a step has ended and is added up.
  [[nodiscard]] AccountedStep take_oldest();
  // Bytes that compression kept off each axis of kReportedAxes in a step.
  [[nodiscard]] const std::vector<double>& saved_bytes(std::int64_t step);

  // What a byte stands for that is sent for rounds in a step, where they are compressed.
  [[nodiscard]] double plain_bytes_of_a_sent_one(std::int64_t step);

  const TrainConfig* config_;
  MeshModel* model_;
  Communicator* world_;
  std::vector<std::string> hosts_;  // of ranks, from the first step's end on
  WaitTimes wait_times_;
  Clock::time_point start_{};  // of the current step
  std::deque<Ended> ended_;    // two at most; all but the last added up
  std::map<std::int64_t, std::vector<double>> saved_bytes_;  // by the first step of a plan
  // Of rounds, by fragment; empty: not asked yet.
  std::vector<std::size_t> plain_bytes_{};
  std::vector<std::size_t> coded_bytes_{};
};

// Corrects the arrival of a round that nobody waited for, which the rank has seen up to a step
// late. `transfers` are the rank's of the step that used the round. Their communicator has noted
// when they ended; where it keeps no such records, the arrival stays.
void correct_arrival(RoundTravel& round, std::span<const Wait> transfers);

}  // namespace slackline
