#pragma once

#include <chrono>
#include <cstddef>
#include <future>
#include <span>
#include <string>
#include <thread>

#include "core/checkpoint/contents.h"
#include "core/checkpoint/shard_list.h"
#include "core/checkpoint/write_shards.h"
#include "core/tensor/buffer.h"

namespace slackline {

// Saves the checkpoints of a run of many ranks while training goes on. Every rank has one and
// writes its own pieces; rank 0 makes a checkpoint of them. It knows no communicators: whoever
// uses it carries the lists to rank 0. Used by one thread. In the order of a run, all ranks:
//
//   writer.remove_debris(); barrier                    before the first save
//   writer.save(contents)                              at one step
//   writer.finished() on all ranks?                    at later steps; or take() at once, to wait
//   gather shard_list_text(writer.take()) to rank 0
//   writer.commit(lists) on rank 0; tell all how it ended
//
// Invariants: 1. constructing it touches no file; 2. what is saved is the state at the call of
// save(); 3. nothing but commit() removes or renames what other ranks wrote; 4. older checkpoints
// are removed only after a newer one is committed; 5. where any rank failed nothing is committed
// and the checkpoints before it stay. A save that nobody commits is debris.
class ShardWriter {
 public:
  struct Options {
    std::string directory;  // of the run's checkpoints, the same for all ranks
    int rank = 0;
    int size = 1;
    std::size_t keep = 2;  // complete checkpoints that stay, at least 1
    std::size_t shard_bytes = kShardBytes;
  };

  explicit ShardWriter(Options options);
  // Waits for a save whose list was not taken; how that failed is logged.
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // Removes what a crash left behind; ranks other than 0 do nothing.
  // REQUIRES: no rank is writing, and none begins before this has returned on rank 0.
  void remove_debris() const;

  // Copies this rank's pieces and returns; the views in `contents` may change from then on. Files
  // are written in the background. Each logical element is given by exactly one rank. Documents
  // and further files are those that rank 0 gives.
  // REQUIRES: the list of the save before it was taken and, all ranks know, committed or refused.
  void save(const CheckpointContents& contents);

  // A save was begun and its list not taken.
  [[nodiscard]] bool is_saving() const { return list_.valid(); }

  // take() would not block. Never blocks.
  [[nodiscard]] bool finished() const {
    return !is_saving() || list_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  // Waits for this rank's files and gives what was written, or how that failed. Throws only when
  // nothing was being saved.
  [[nodiscard]] ShardList take();

  // Makes the last save a checkpoint (commit_checkpoint) and removes older ones. Throws when a rank
  // failed, naming it; then nothing is left of the save.
  // REQUIRES: rank 0; `lists` are those of that save, lists[i] of rank i.
  void commit(std::span<const ShardList> lists);

 private:
  Options options_;
  CheckpointContents head_;  // of the last save, without tensors
  Buffer staging_;           // what the thread writes: copies of the tensors
  std::thread thread_;       // runs while list_ is due
  std::future<ShardList> list_;
};

}  // namespace slackline
