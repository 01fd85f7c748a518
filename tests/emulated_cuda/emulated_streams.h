#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulated_cuda/cuda_runtime.h"

// Streams and events of the emulated runtime. Each stream is a thread, so work of two streams, and
// of a stream and the host, is in the order that events and waits give it, and in no other.
namespace emulated_cuda {

using Job = std::function<void()>;

inline double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// A record of an event.
struct Point {
  std::atomic<bool> passed = false;
  double seconds = 0.0;  // of its passing

  void pass() {
    seconds = now();
    passed = true;
    passed.notify_all();
  }

  void wait() { passed.wait(false); }
};

// True where the calling thread captures a stream, which forbids a call that may depend on work
// that does not run yet. The capture fails then.
bool spoils_capture();

// True for ordinary memory of the host, which the runtime does not copy behind the caller's back
// (emulated_memory.cpp).
[[nodiscard]] bool is_pageable(const void* pointer);

}  // namespace emulated_cuda

struct CUevent_st {
  std::shared_ptr<emulated_cuda::Point> point{};  // null: never recorded
  cudaStream_t captured_by = nullptr;  // the last record is a part of what this stream captured
};

// After a job that threw, those that follow are left out but for what others wait for, and who
// synchronizes gets the exception.
struct CUstream_st {
 public:
  using Job = emulated_cuda::Job;
  enum class Runs { unless_failed, always };

  CUstream_st() : thread_([this] { run(); }) {}

  ~CUstream_st() {
    {
      const std::scoped_lock lock(mutex_);
      ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;

  void enqueue(Job job, Runs runs = Runs::unless_failed) {
    if (captured_) {
      captured_->push_back(std::move(job));
      return;
    }
    {
      const std::scoped_lock lock(mutex_);
      jobs_.emplace_back(std::move(job), runs);
    }
    wake_.notify_one();
  }

  // Calls of the thread that captures, as all that queue work meanwhile.
  void begin_capture() {
    captured_.emplace();
    capture_failed_ = false;
  }

  [[nodiscard]] bool captures() const { return captured_.has_value(); }

  // By what a stream that is being captured cannot do.
  void fail_capture() { capture_failed_ = true; }

  // Empty where it failed.
  [[nodiscard]] std::optional<std::vector<Job>> end_capture() {
    std::optional<std::vector<Job>> jobs = std::exchange(captured_, std::nullopt);
    return capture_failed_ ? std::nullopt : std::move(jobs);
  }

  void synchronize() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return jobs_.empty() && !busy_; });
    if (thrown_) {
      std::rethrow_exception(thrown_);
    }
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty()) {
        return;
      }
      const auto [job, runs] = std::move(jobs_.front());
      jobs_.pop_front();
      if (thrown_ && runs == Runs::unless_failed) {
        continue;
      }
      busy_ = true;
      lock.unlock();
      std::exception_ptr thrown;
      try {
        job();
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      busy_ = false;
      thrown_ = thrown_ ? thrown_ : thrown;
      if (jobs_.empty()) {
        idle_.notify_all();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<std::pair<Job, Runs>> jobs_;
  bool busy_ = false;
  bool ending_ = false;
  std::exception_ptr thrown_;
  std::optional<std::vector<Job>> captured_{};  // by the host's thread
  bool capture_failed_ = false;
  std::thread thread_;
};
