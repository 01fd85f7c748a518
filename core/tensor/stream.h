#pragma once

#include <memory>
#include <string>

#include "core/cuda/cuda_stream.h"
#include "core/tensor/arena.h"
#include "core/tensor/buffer.h"
#include "core/tensor/device.h"
#include "core/tensor/workers.h"
#include "core/threads/thread_pool.h"

namespace slackline {

class Profile;
class RehearsalClock;

// Where ops run: an order of execution with scratch memory. On the CPU ops run on the stream's
// thread pool and have finished when the call returns; on the CUDA device they are queued, and
// scratch that an op gives back may be taken by the next, which runs after it; on the rehearsal
// device they take time on its clock. One thread submits to a stream.
class Stream {
 public:
  struct Options {
    std::string name = "compute";
    Device device = Device::cpu;
    int num_threads = 1;
    std::size_t workspace_bytes = 0;  // scratch of the ops; from the memory plan
    Profile* profile = nullptr;       // where ranges are recorded; may be null; not owned
    // Makes it a stream of the rehearsal device, where ops take no time without one; not owned.
    RehearsalClock* rehearsal = nullptr;
  };

  explicit Stream(const Options& options)
      : device_(options.rehearsal != nullptr ? Device::rehearsal : options.device),
        cuda_(device_ == Device::cuda ? std::make_unique<CudaStream>() : nullptr),
        pool_(options.num_threads),
        workspace_(options.name + " workspace", options.workspace_bytes, backing_of(device_)),
        profile_(options.profile),
        rehearsal_(options.rehearsal) {}

  explicit Stream(const Workers& workers,
                  std::size_t workspace_bytes,
                  const std::string& name = "compute")
      : Stream(Options{.name = name,
                       .device = workers.device,
                       .num_threads = workers.num_threads,
                       .workspace_bytes = workspace_bytes}) {}

  [[nodiscard]] Device device() const { return device_; }

  // Blocks until ops that were submitted are done.
  void synchronize() const {
    if (cuda_) {
      cuda_->synchronize();
    }
  }

  // REQUIRES: device cuda.
  [[nodiscard]] CudaStream& cuda() const { return *cuda_; }

  [[nodiscard]] ThreadPool& pool() { return pool_; }

  [[nodiscard]] Arena& workspace() { return workspace_; }

  [[nodiscard]] Profile* profile() const { return profile_; }

  // Null on other devices, and where ops take no time.
  [[nodiscard]] RehearsalClock* rehearsal() const { return rehearsal_; }

 private:
  Device device_;
  std::unique_ptr<CudaStream> cuda_;  // null on other devices; outlives the workspace
  ThreadPool pool_;
  Arena workspace_;
  Profile* profile_;
  RehearsalClock* rehearsal_;
};

// What ops take: a reference to a stream. Copy freely; never outlives its Stream.
class StreamView {
 public:
  StreamView(Stream& stream) : stream_(&stream) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] Device device() const { return stream_->device(); }

  void synchronize() const { stream_->synchronize(); }

  [[nodiscard]] CudaStream& cuda() const { return stream_->cuda(); }

  [[nodiscard]] ThreadPool& pool() const { return stream_->pool(); }

  [[nodiscard]] Arena& workspace() const { return stream_->workspace(); }

  [[nodiscard]] Profile* profile() const { return stream_->profile(); }

  [[nodiscard]] RehearsalClock* rehearsal() const { return stream_->rehearsal(); }

 private:
  Stream* stream_;
};

}  // namespace slackline
