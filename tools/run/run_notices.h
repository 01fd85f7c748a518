#pragma once

#include "core/checkpoint/checkpoint.h"
#include "data/data_members.h"
#include "optim/outer_config.h"
#include "parallel/step/groups.h"
#include "tools/config/train_config.h"
#include "tools/record/run_directory.h"

namespace slackline {

// A run says these of itself at its start and its end.

// Shows the table of data sets, warns of what it warns of, and writes it down.
void report_data(const TrainConfig& config, const DataMembers& data, const RunDirectory& directory);

// Says how much of the planned pool was used.
void report_device_memory(int rank);

// Says where other workers go on than have made a checkpoint.
void report_workers(const Checkpoint& checkpoint, const Groups& groups, bool has_rounds);

// Says where the last round of a checkpoint, with which a run has come to its end, moves no anchor
// any more.
void report_missing_end(const Checkpoint& checkpoint, std::int64_t step);

// Warns where the record of a run that goes on, which ends with a step, does not reach its
// checkpoint's.
void warn_of_lost_record(const std::string& directory, std::int64_t recorded, std::int64_t saved);

// A rate that no late average can bear warns, and trains: small modes may bear it.
void warn_of_unstable_rounds(const OuterConfig& config);

}  // namespace slackline
