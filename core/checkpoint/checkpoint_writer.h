#pragma once

#include <cstddef>
#include <string>

#include "core/checkpoint/contents.h"
#include "core/checkpoint/staged_write.h"
#include "core/checkpoint/write_shards.h"

namespace slackline {

// Saves the checkpoints of a run of one rank while training goes on; ShardWriter does it for many.
// Used by one thread.
//
// Invariants: 1. constructing it touches no file; 2. what is saved is the state at the call of
// save(); 3. older checkpoints are removed only after a newer one is on the disk; 4. a failed save
// leaves the checkpoints before it as they were; 5. the destructor waits for a save under way and
// logs its failure, if nobody asked for it.
class CheckpointWriter {
 public:
  struct Options {
    std::string directory;  // of the run's checkpoints
    std::size_t keep = 2;   // complete checkpoints that stay, at least 1
    std::size_t shard_bytes = kShardBytes;
  };

  explicit CheckpointWriter(Options options);

  // Waits for the save before it (and throws its failure), removes debris of crashes, copies the
  // tensors and returns; the views in `contents` may change from then on. Files are written in the
  // background, as step-<step>.
  void save(const CheckpointContents& contents);

  // Returns when the last save is on the disk; throws the FileError it failed with, once.
  void wait() { write_.wait(); }

 private:
  Options options_;
  StagedWrite write_;  // last: uses the options until it has ended
};

}  // namespace slackline
