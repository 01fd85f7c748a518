#include "core/cuda/event_watch.h"

#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

#include "core/cuda/cuda_device.h"
#include "core/error.h"
#include "core/threads/start_thread.h"

namespace slackline {

namespace {

constexpr std::chrono::microseconds kPause{20};

bool has_come(const CudaEvent& event) {
  try {
    return event.is_done();
  } catch (const DeviceError&) {
    return true;
  }
}

}  // namespace

EventWatch::EventWatch()
    : thread_(start_thread("what waits for the device", [this, device = cuda::device_of_thread()] {
        cuda::adopt_device(device);
        run();
      })) {}

EventWatch::~EventWatch() {
  forget();
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void EventWatch::when(std::shared_ptr<const CudaEvent> event, Job job) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(event), std::move(job)});
  }
  wake_.notify_one();
}

void EventWatch::forget() {
  std::deque<Waiting> dropped;  // ends outside of the lock
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return !busy_; });
  dropped.swap(waiting_);
}

void EventWatch::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return end_ || !waiting_.empty(); });
    if (end_) {
      return;
    }
    std::deque<Waiting> looked_at = std::exchange(waiting_, {});
    busy_ = true;
    lock.unlock();
    // The last first: of two events of a stream the later may come between two looks, but not the
    // later alone, so that jobs keep their order.
    std::vector<bool> come(looked_at.size());
    for (std::size_t i = looked_at.size(); i-- > 0;) {
      come[i] = has_come(*looked_at[i].event);
    }
    std::deque<Waiting> rest;
    for (std::size_t i = 0; i < looked_at.size(); ++i) {
      if (come[i]) {
        looked_at[i].job();
        looked_at[i] = {};
      } else {
        rest.push_back(std::move(looked_at[i]));
      }
    }
    const bool ran = rest.size() < looked_at.size();
    looked_at.clear();
    lock.lock();
    busy_ = false;
    waiting_.insert(waiting_.begin(),
                    std::make_move_iterator(rest.begin()),
                    std::make_move_iterator(rest.end()));
    idle_.notify_all();
    if (!ran && !waiting_.empty()) {
      wake_.wait_for(lock, kPause, [&] { return end_; });
    }
  }
}

}  // namespace slackline
