#include "tools/run/run_notices.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/cuda/cuda_memory.h"
#include "core/log.h"
#include "core/tensor/memory_table.h"
#include "parallel/step/outer_loop.h"
#include "tools/run/data_table.h"

namespace slackline {

void report_data(const TrainConfig& config,
                 const DataMembers& data,
                 const RunDirectory& directory) {
  const std::vector<DataTableRow> rows = data_table(config, data.train);
  directory.write("data.json", data_table_json(rows));
  log_info(Lines{"training data:\n" + data_table_text(rows)});
  for (const std::string& warning : data_table_warnings(rows)) {
    log_warning(warning);
  }
}

void report_device_memory(int rank) {
  const cuda::MemoryPool::Use use = cuda::pool_of_thread()->use();
  log_info(
      fmt::format("rank {}: device memory: a pool of {}, of which at most {} were in use; at "
                  "most {} apart from it",
                  rank,
                  size_text(use.reserved),
                  size_text(use.most),
                  size_text(use.beyond)));
}

void report_workers(const Checkpoint& checkpoint, const Groups& groups, bool has_rounds) {
  const int before = OuterLoop::workers_of(checkpoint.documents().outer);
  const int now = has_rounds ? groups.num_workers() : 0;
  if (before == now) {
    return;
  }
  const auto text = [](int workers) {
    return workers == 0 ? std::string("ranks that all step together")
                        : fmt::format("{} workers", workers);
  };
  log_info(fmt::format("{}: made by {}; {} go on from {}",
                       checkpoint.path(),
                       text(before),
                       text(now),
                       before == 0 ? "its weights and moments"
                                   : "the anchor, moved by the round that had arrived, with the "
                                     "mean of the moments"));
}

void report_missing_end(const Checkpoint& checkpoint, std::int64_t step) {
  const std::string& text = checkpoint.documents().outer;
  if (OuterLoop::workers_of(text) > 0 && OuterLoop::lacks_end(text, step)) {
    log_info(
        fmt::format("{}: lacks the end of a round, which moves the anchor; more run.steps make it",
                    checkpoint.path()));
  }
}

// A checkpoint may outlive lines that were written before it where a disk loses what it was told to
// keep, or a file was put back from a copy.
void warn_of_lost_record(const std::string& directory, std::int64_t recorded, std::int64_t saved) {
  if (recorded < saved) {
    log_warning(
        fmt::format("{}: metrics.jsonl ends with step {} and the checkpoint is of step {}: "
                    "the steps between are trained, and their record is lost",
                    directory,
                    recorded,
                    saved));
  }
}

void warn_of_unstable_rounds(const OuterConfig& config) {
  const double penalty = config.penalty == OuterPenalty::constant ? config.penalty_value : 1.0;
  if (config.is_late() && !config.measures_moves() &&
      config.lr / penalty > largest_stable_rate(config)) {
    log_warning(fmt::format(
        "outer.lr {} over a penalty of {} is beyond {:.4g}, at an outer.momentum of {}: "
        "what a round learns whole becomes unstable when it arrives a round late; "
        "lower outer.lr{}",
        config.lr,
        penalty,
        largest_stable_rate(config),
        config.momentum,
        config.method == OuterMethod::co2 ? ", or set outer.penalty \"gap\"" : ""));
  }
}

}  // namespace slackline
