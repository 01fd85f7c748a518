#include "core/comm/sum_worker.h"

#include <utility>

namespace slackline {

SumWorker::SumWorker(std::function<void(Flight&)> finished)
    : finished_(std::move(finished)), thread_([this] { run(); }) {}

SumWorker::~SumWorker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void SumWorker::submit(Flight& flight) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(&flight);
  }
  wake_.notify_one();
}

void SumWorker::drain() {
  std::unique_lock lock(mutex_);
  queue_.clear();
  idle_.wait(lock, [&] { return !busy_; });
}

void SumWorker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (stop_) {
      return;
    }
    Flight& flight = *queue_.front();
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    flight.moves.steps[flight.step].sum->run();
    finished_(flight);
    lock.lock();
    busy_ = false;
    idle_.notify_all();
  }
}

}  // namespace slackline
