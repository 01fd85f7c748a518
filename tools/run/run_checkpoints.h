#pragma once

#include <cstddef>
#include <string>

#include "core/checkpoint/shard_writer.h"
#include "core/comm/communicator.h"

namespace slackline {

// The checkpoints of a running job: every rank writes its pieces in the background, and when all
// have, rank 0 makes a checkpoint of them. All ranks call the same at the same point of the run,
// and where one fails all throw the same AgreedError.
class RunCheckpoints {
 public:
  RunCheckpoints(std::string directory, std::size_t keep, Communicator& world);

  // Before the first step: removes debris and makes sure that all ranks see one directory.
  // The error names a rank that does not.
  void prepare();

  // Commits the save before it, copies the pieces and returns.
  void save(const CheckpointContents& contents);

  // Commits a save that all ranks have written; does not wait for one that they have not.
  void commit_when_written();

  // Waits for a save under way and commits it.
  void finish();

 private:
  std::string directory_;
  Communicator* world_;
  ShardWriter writer_;
};

}  // namespace slackline
