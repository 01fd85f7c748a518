#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <thread>

#include "core/buffer.h"
#include "core/checkpoint/contents.h"
#include "core/checkpoint/write_checkpoint.h"

namespace slackline {

// Saves a run's checkpoints while training goes on. Owns one thread while a save is under way and
// the staging buffer that holds its copy. Used by one thread.
//
// Invariants: 1. constructing it touches no file; 2. what is saved is the state at the call of
// save(); 3. older checkpoints are removed only after a newer one is on the disk; 4. a failed save
// leaves the checkpoints before it as they were.
class CheckpointWriter {
 public:
  struct Options {
    std::string directory;  // of the run's checkpoints
    std::size_t keep = 2;   // complete checkpoints that stay, at least 1
    std::size_t shard_bytes = kShardBytes;
  };

  explicit CheckpointWriter(Options options);
  // Waits for a save under way; its failure, if nobody asked for it, is logged.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Waits for the save before it (and throws its failure), removes debris of crashes, copies the
  // tensors and returns; the views in `contents` may change from then on. Files are written in the
  // background, as step-<step>.
  void save(const CheckpointContents& contents);

  // Returns when the last save is on the disk; throws the FileError it failed with, once.
  void wait();

 private:
  [[nodiscard]] CheckpointContents stage(const CheckpointContents& contents);
  void write(const CheckpointContents& staged) noexcept;

  Options options_;
  Buffer staging_;
  std::thread thread_;
  std::exception_ptr failure_;  // the thread's; read after joining it
};

// Memory that a writer keeps for saves of these contents.
[[nodiscard]] std::size_t staging_bytes(const CheckpointContents& contents);

}  // namespace slackline
