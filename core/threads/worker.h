#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace slackline {

// A thread that runs jobs one after the other, in the order they were handed over. Jobs must not
// throw. Any thread may call, but jobs only submit(). The thread uses the CUDA device of the one
// that makes it.
class Worker {
 public:
  Worker();

  // As stop().
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void submit(std::function<void()> job);

  // Returns when every job has ended.
  void finish();

  // Returns when no job is under way; jobs that had not begun are forgotten.
  void drain();

  // As drain(), and forgets jobs that are handed over later.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false;
  bool stop_ = false;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace slackline
