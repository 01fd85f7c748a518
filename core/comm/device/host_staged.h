#pragma once

#include <memory>

#include "core/comm/communicator.h"
#include "core/comm/device/host_staging.h"

namespace slackline {

// A communicator that takes tensors of a CUDA device, too, by copies on the host: for ranks that
// share a device, and where there is no NCCL. Tensors of the host go as they are. Where the stream
// waits for a tensor of the device (HostStaging::Waits), a transfer that fails later makes the next
// call throw. Jobs of a TransferWork leave and find data in the
// device's memory; they end when it is there. `inner` may be null, and is given back then.
[[nodiscard]] std::unique_ptr<Communicator> host_staged(std::unique_ptr<Communicator> inner,
                                                        std::shared_ptr<HostStaging> staging);

}  // namespace slackline
