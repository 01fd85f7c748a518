#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace slackline {

// What wakes a process that waits for others of its host, or for its own threads: a word in memory
// that they may share, all 0 at first. Whoever has sent something to the process, taken something
// from it, or left something to do for its engine, rings. From any thread of any of the processes.
class alignas(64) Bell {
 public:
  // Those who listen: threads of ranks that wait for their transfers, and the engine's.
  enum class Listener : std::uint8_t { rank, engine };

  // Returns how often it was rung so far. To be read before a look for what rings tell of.
  [[nodiscard]] std::uint32_t rings() const { return rings_.load(std::memory_order_acquire); }

  // Wakes ranks that listen; where none does, the engine.
  void ring();

  void ring(Listener listener);
  void ring_all();

  // Blocks until the bell was rung more often than `heard`, or `longest` has passed. May return
  // sooner.
  void wait(Listener listener, std::uint32_t heard, std::chrono::nanoseconds longest);

 private:
  std::atomic<std::uint32_t> rings_{0};
  std::array<std::atomic<std::uint32_t>, 2> listening_{};  // threads, by Listener
};

}  // namespace slackline
