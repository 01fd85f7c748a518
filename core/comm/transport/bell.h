#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace slackline {

// Wakes a process that waits for others of its host, or for its own threads, through memory that
// they may share. Whoever has sent something to the process, taken something from it, or left
// something to do for its engine, rings. Any thread of any of the processes may call.
class alignas(64) Bell {
 public:
  // Those who listen: threads of ranks that wait for their transfers, and the engine's.
  enum class Listener : std::uint8_t { rank, engine };

  // Returns how often it was rung so far. To be read before a look for what rings tell of.
  [[nodiscard]] std::uint32_t rings() const { return rings_.load(std::memory_order_acquire); }

  // Wakes ranks that listen; where none does, the engine.
  void ring();

  // Wakes those alone.
  void ring(Listener listener);

  // Blocks until the bell was rung more often than `heard`, or `longest` has passed. May return
  // sooner.
  void wait(Listener listener, std::uint32_t heard, std::chrono::nanoseconds longest);

 private:
  [[nodiscard]] bool listens(Listener listener) const;

  std::atomic<std::uint32_t> rings_{0};
  std::array<std::atomic<std::uint32_t>, 2> listening_{};  // threads, by Listener
};

}  // namespace slackline
