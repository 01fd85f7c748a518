#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "parallel/predict/timeline/chrome_trace.h"
#include "tools/config/train_config.h"
#include "tools/record/run_directory.h"
#include "tools/run/measure/measured_steps.h"
#include "tools/run/measure/step_accounts.h"

namespace slackline {

// Records the trace of two steps of a run, where its config asks for one, and writes it once it is
// complete: of all ranks that step together. Every rank has one and calls alike; the first rank of
// the run writes.
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

  // Adds a step if it is traced: its ops and transfers, and on the track "step" its whole length.
  // Blocks where it is the last one. REQUIRES: the directory is started.
  void add(const AccountedStep& step);

 private:
  void add_bars(const AccountedStep& step);
  // The bars of all ranks as Chrome's JSON; on every rank. Blocks.
  [[nodiscard]] std::string chrome_text() const;

  bool traces_;
  std::int64_t first_;  // step
  Communicator* world_;
  bool writes_;
  RunDirectory* directory_;
  std::vector<schedule::TraceBar> bars_;  // of this rank
};

}  // namespace slackline
