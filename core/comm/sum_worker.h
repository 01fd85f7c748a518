#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "core/comm/flight.h"

namespace slackline {

// The thread that adds up what the engine received, so that the engine never computes. Sums run in
// the order they were submitted; `finished` is called on this thread after each.
class SumWorker {
 public:
  explicit SumWorker(std::function<void(Flight&)> finished);
  ~SumWorker();
  SumWorker(const SumWorker&) = delete;
  SumWorker& operator=(const SumWorker&) = delete;

  // Starts the sum of the flight's current step. The flight outlives it: drain() before dropping.
  void submit(Flight& flight);

  // Returns when no sum is under way; sums that had not begun are forgotten.
  void drain();

 private:
  void run();

  std::function<void(Flight&)> finished_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<Flight*> queue_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace slackline
