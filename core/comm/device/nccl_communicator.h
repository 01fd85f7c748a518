#pragma once

#include <memory>
#include <string>

#include "core/comm/device/host_staged.h"

namespace slackline {

// "NCCL 2.28.3"; empty in a program without it.
[[nodiscard]] std::string nccl_version();

// What a group is for: sums and gatherings over all of it, or messages between neighbours in a ring
// of its ranks. Other transfers go through the host.
enum class NcclTraffic { collectives, neighbours };

// A communicator whose plain transfers of device tensors go by NCCL, on a stream of its own. They
// begin when the rank's compute stream has come to their submission, and wait() has that stream
// wait for them, not the host. Sums are made as everywhere, per element and in rank order:
// slices travel to the rank that sums them, and come back, directly or through the groups of a
// hierarchy; of short tensors, and between two ranks, everybody sums all.
//
// What carries codec work, and tensors of the host, go through `staged`, a host_staged()
// communicator of the same group, which is not to be null. All members make it together, in the
// same order. Messages of two neighbours have an NCCL communicator and a stream of their own in
// each direction: a receive that is posted early does not hold up what is sent meanwhile. Where a
// rank of the world has failed, what waits for it is aborted.
[[nodiscard]] std::unique_ptr<Communicator> nccl(std::unique_ptr<Communicator> staged,
                                                 std::shared_ptr<HostStaging> staging,
                                                 NcclTraffic traffic);

}  // namespace slackline
