#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <string>
#include <thread>

#include "core/checkpoint/contents.h"
#include "core/tensor/buffer.h"

namespace slackline {

// A copy of a run's state and the thread that writes it while training goes on. Owns both. Used by
// one thread; at most one write is under way.
class StagedWrite {
 public:
  using Body = std::function<void(const CheckpointContents& staged)>;

  StagedWrite() = default;
  // Waits for a write under way; its failure, if nobody asked for it, is logged.
  ~StagedWrite();
  StagedWrite(const StagedWrite&) = delete;
  StagedWrite& operator=(const StagedWrite&) = delete;

  // Copies the tensors, starts `write` on the copy and returns. REQUIRES: wait() has returned since
  // the start before; what `write` uses outlives it.
  void start(const CheckpointContents& contents, Body write);

  // No write is under way. Never blocks.
  [[nodiscard]] bool finished() const { return finished_; }

  // Returns when the write has ended; throws what it threw, once.
  void wait();

 private:
  void run(const CheckpointContents& staged, const Body& write) noexcept;

  Buffer staging_;
  std::thread thread_;
  std::exception_ptr failure_;  // the thread's; read after joining it
  std::atomic<bool> finished_ = true;
};

}  // namespace slackline
