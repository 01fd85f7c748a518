#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "core/cuda/cuda_stream.h"

namespace slackline {

// A thread that runs jobs when points of streams have been passed, so that no other thread waits
// for them. Jobs of one stream's points run in the points' order. Jobs are short and must not
// throw. It looks every 20 us while it has jobs. A stream that has failed counts as past every
// point: what comes next on it tells.
class EventWatch {
 public:
  using Job = std::function<void()>;

  EventWatch();
  // As forget().
  ~EventWatch();
  EventWatch(const EventWatch&) = delete;
  EventWatch& operator=(const EventWatch&) = delete;

  // From any thread.
  void when(std::shared_ptr<const CudaEvent> event, Job job);

  // Returns when no job is under way; those that wait are dropped.
  void forget();

 private:
  struct Waiting {
    std::shared_ptr<const CudaEvent> event;
    Job job;
  };

  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<Waiting> waiting_;
  bool busy_ = false;  // with what it has taken out of the list
  bool end_ = false;
  std::thread thread_;
};

}  // namespace slackline
