#pragma once

#include "core/comm/communicator.h"
#include "tools/config/train_config.h"

namespace slackline {

// Throws AgreedError with ExitCode::config on every rank unless all hosts hold the same of what a
// run starts from: token files with their indices and tokenizers, the checkpoint it goes on from or
// takes weights from, and files of costs, plans and links that the config names. The message names
// the first file that differs, and the host. Large files are compared by size and 64 sampled pages,
// indices and manifests whole, checkpoints by their step as well. On each host one rank reads a
// file, the first of those that see the same one. Absent files are equal to absent ones. Blocks;
// all ranks call it. Throws AgreedError with ExitCode::file where another run writes the directory,
// whose checkpoints would change while they are compared. REQUIRES: all ranks have the same config
// and `resume`.
void require_same_files(Communicator& world, const TrainConfig& config, bool resume);

}  // namespace slackline
