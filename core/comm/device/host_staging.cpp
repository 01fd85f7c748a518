#include "core/comm/device/host_staging.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/cuda/cuda_memory.h"

namespace slackline {

namespace {

// Without a beginning of the wait in the transfer's record. One that takes long is a wait after
// all, and counts for the time after which a silent rank is given up.
void wait_unnoticed(const Transfer& transfer) {
  constexpr std::chrono::microseconds kPause(20);
  constexpr std::chrono::seconds kLong(1);
  const auto begin = std::chrono::steady_clock::now();
  while (!transfer.done() && std::chrono::steady_clock::now() - begin < kLong) {
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

void HostStaging::Gate::open_first(std::size_t count) const {
  std::atomic_ref<std::uint32_t>(*word).store(value_of(count), std::memory_order_release);
}

void HostStaging::follow(StreamView compute) {
  compute_ = compute;
  departures_ = std::make_unique<CudaStream>();
  arrivals_ = std::make_unique<CudaStream>();
}

CudaStream& HostStaging::stream() const {
  SL_CHECK(compute_.has_value(), "a transfer of device memory before there is a stream");
  return compute_->cuda();
}

std::shared_ptr<const CudaEvent> HostStaging::computed() const {
  auto event = std::make_shared<CudaEvent>();
  event->record(stream());
  return event;
}

void HostStaging::follow_event(const CudaEvent& event) const {
  stream().follow(event);
}

TransferWork::Start HostStaging::when(std::shared_ptr<const CudaEvent> event) {
  return [this, event = std::move(event)](TransferWork::Job job) {
    watch_.when(event, std::move(job));
  };
}

ScratchPool::Lease HostStaging::take(std::size_t bytes) {
  if (!scratch_->has(bytes)) {
    finish();
  }
  return scratch_->take(bytes);
}

HostStaging::Gate HostStaging::take_gate(std::size_t doors) {
  if (free_gates_.empty()) {
    finish();
  }
  if (free_gates_.empty()) {
    Buffer& block = gate_blocks_.emplace_back(
        "gates of transfers", kGatesInBlock * sizeof(std::uint32_t), Backing::pinned);
    block.fill_zero();
    auto* const words = reinterpret_cast<std::uint32_t*>(block.data());
    for (std::size_t i = 0; i < kGatesInBlock; ++i) {
      free_gates_.push_back({.word = words + i});
    }
  }
  Gate gate = free_gates_.back();
  free_gates_.pop_back();
  gate.doors = static_cast<std::uint32_t>(doors);
  gate.value += gate.doors;
  return gate;
}

std::shared_ptr<const CudaEvent> HostStaging::copy_out(const Tensor& from, const Tensor& to) {
  departures_->follow(*computed());
  cuda::copy(departures_->handle(), to.raw(), from.raw(), from.bytes());
  auto copied = std::make_shared<CudaEvent>();
  copied->record(*departures_);
  return copied;
}

void HostStaging::land(Landing landing) {
  bool streams_wait = false;
  if (waits_ == Waits::thread || landing.transfer.done()) {
    if (!landing.transfer.done()) {
      computed()->wait();  // the wait for the transfer begins then
    }
    landing.transfer.wait();
  } else {
    if (std::function<void()> begins = landing.transfer.state()->wait_begins()) {
      watch_.when(computed(), std::move(begins));
    }
    streams_wait = true;
  }
  if (!landing.results.empty()) {
    arrivals_->follow(*landing.posted);
  }
  for (const Copy& copy : landing.results) {
    if (streams_wait) {
      arrivals_->follow(landing.gate->word, landing.gate->value_of(copy.door + 1));
    }
    cuda::copy(arrivals_->handle(), copy.to.raw(), copy.from.raw(), copy.from.bytes());
  }
  if (streams_wait) {
    arrivals_->follow(landing.gate->word, landing.gate->value);
  }
  auto landed = std::make_shared<CudaEvent>();
  landed->record(*arrivals_);
  stream().follow(*landed);
  landing.landed = std::move(landed);
  keep(std::move(landing));
}

void HostStaging::keep(Landing landing) {
  landings_.push_back(std::move(landing));
  while (landings_.size() > kMostKept) {
    drop_first();
  }
}

void HostStaging::look() {
  const auto has_landed = [](const Landing& landing) {
    return landing.landed == nullptr || landing.landed->is_done();
  };
  while (!landings_.empty() && landings_.front().transfer.done() && has_landed(landings_.front())) {
    drop_first();
  }
  // A failure fails all: none that follows need be looked at.
  if (!landings_.empty() && landings_.front().transfer.done()) {
    landings_.front().transfer.wait();
  }
}

void HostStaging::finish() {
  while (!landings_.empty()) {
    drop_first();
  }
}

// The wait that counts is the stream's; for what was sent nobody waits.
void HostStaging::drop_first() {
  Landing& first = landings_.front();
  if (first.landed != nullptr) {
    first.landed->wait();
  } else {
    wait_unnoticed(first.transfer);
  }
  first.transfer.wait();
  if (first.gate) {
    free_gates_.push_back(*first.gate);
  }
  landings_.pop_front();
}

}  // namespace slackline
