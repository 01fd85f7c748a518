#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "parallel/predict/timeline/chrome_trace.h"
#include "parallel/step/round_travel.h"
#include "tools/config/train_config.h"
#include "tools/record/run_directory.h"
#include "tools/run/measure/cost_recorder.h"
#include "tools/run/measure/step_accounts.h"

namespace slackline {

// Records the trace of two steps of a run, where its config asks for one, and writes it once they
// are complete: of all ranks that step together. Every rank has one and calls alike; the first rank
// of the run writes.
//
// Outer rounds outlive steps, so a trace also has those of the first ends that this process makes,
// and is written anew with each of these: a round's bar lasts from its sending to its arrival,
// beside bars of the steps that had it to hide, of the time that a rank waited for it, and of the
// whole end, in which ranks also wait for each other.
class TraceRecorder {
 public:
  // The steps after `first_step`, the first that this process trains, are traced. Where a plan is
  // chosen at once by what is `measured` first, steps under it are, if the run has as many.
  // Config, groups and directory must outlive it.
  TraceRecorder(const TrainConfig& config,
                std::int64_t first_step,
                const MeasuredSteps& measured,
                const Groups& groups,
                RunDirectory& directory);

  // Adds a step if it is traced: its ops and transfers, and on the track "step" its whole length;
  // of any step the outer rounds that it used. Blocks where that is written. REQUIRES: the
  // directory is started.
  void add(const AccountedStep& step);

 private:
  void add_bar(std::string track, std::string name, double begin, double end);
  void add_bars(const AccountedStep& step);
  void add_rounds(const AccountedStep& step);
  // Bars of what has been sent, and has not arrived by the end of the last traced step.
  [[nodiscard]] std::vector<schedule::TraceBar> unfinished_bars() const;
  // Writes the bars of all ranks. Blocks.
  void write();

  bool traces_;
  std::int64_t first_;  // step
  int ends_left_;       // of rounds, to be recorded
  Communicator* world_;
  bool writes_;
  RunDirectory* directory_;
  std::vector<schedule::TraceBar> bars_{};     // of this rank, since the trace was last written
  std::vector<schedule::TraceBar> written_{};  // of all ranks; on the rank that writes
  std::optional<RoundTravel> under_way_{};     // the round that was sent last
  double newest_ = 0.0;                        // when the last traced step ended
};

}  // namespace slackline
