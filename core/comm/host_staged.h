#pragma once

#include <memory>
#include <optional>

#include "core/comm/communicator.h"
#include "core/comm/scratch_pool.h"
#include "core/stream.h"

namespace slackline {

// What the communicators of a rank need to move tensors of a CUDA device through the host: memory
// there, and the stream on which the rank computes, once there is one. Shared by the rank's groups.
class HostStaging {
 public:
  // Transfers that are submitted from now on follow what the stream has been given by then, and
  // what it is given after a wait follows the transfer.
  void follow(StreamView compute) { compute_ = compute; }

  // What the rank has computed by the time of the call, for jobs on other threads to wait for.
  [[nodiscard]] std::shared_ptr<const CudaEvent> computed() const;

  // What the rank computes from now on follows the event.
  void follow_event(const CudaEvent& event) const;

  // Pinned, so that the device copies it without the processor's help.
  [[nodiscard]] ScratchPool::Lease take(std::size_t bytes) const { return scratch_->take(bytes); }

  // Block until done. On the thread that submits transfers.
  void copy_to_host(const Tensor& from, const Tensor& to) const;
  void copy_to_device(const Tensor& from, const Tensor& to) const;

 private:
  std::optional<StreamView> compute_{};
  std::shared_ptr<ScratchPool> scratch_ = std::make_shared<ScratchPool>(Backing::pinned);
};

// A communicator that takes tensors of a CUDA device, too, by copies on the host: for ranks that
// share a device, and where there is no NCCL. Tensors of the host go as they are. Jobs of a
// TransferWork leave and find data in the device's memory; they end when it is there. `inner` may
// be null, and is given back then.
[[nodiscard]] std::unique_ptr<Communicator> host_staged(std::unique_ptr<Communicator> inner,
                                                        std::shared_ptr<const HostStaging> staging);

}  // namespace slackline
