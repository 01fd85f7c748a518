#include "core/threads/worker.h"

#include <utility>

#include "core/cuda/cuda_device.h"
#include "core/threads/start_thread.h"
#include "core/threads/thread_pool.h"

namespace slackline {

Worker::Worker()
    : thread_(start_thread("a rank's codecs and copies", [this, device = cuda::device_of_thread()] {
        cuda::adopt_device(device);
        run();
      })) {}

Worker::~Worker() {
  stop();
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Worker::submit(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) {
      return;
    }
    queue_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void Worker::finish() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return !busy_ && queue_.empty(); });
}

void Worker::drain() {
  std::unique_lock lock(mutex_);
  queue_.clear();
  idle_.notify_all();
  idle_.wait(lock, [&] { return !busy_; });
}

void Worker::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  drain();
}

void Worker::run() {
  make_libraries_single_threaded();
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return end_ || !queue_.empty(); });
    if (end_) {
      return;
    }
    std::function<void()> job = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    busy_ = false;
    idle_.notify_all();
  }
}

}  // namespace slackline
