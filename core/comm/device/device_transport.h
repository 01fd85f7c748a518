#pragma once

#include <string>

#include "core/comm/communicator.h"

namespace slackline {

// What the config asks for: `automatic` is NCCL where it can be used, else the host.
enum class TransportWish { automatic, nccl, host };

// How ranks move tensors of CUDA devices: "NCCL 2.28.3", or "copies on the host: " and why not
// NCCL.
struct DeviceTransport {
  bool uses_nccl = false;
  bool ranks_are_processes = false;  // each in one of its own
  int num_devices = 1;               // different ones, of all ranks
  std::string text{};
};

// What the choice depends on; the same on all ranks.
struct TransportFacts {
  int num_ranks = 1;
  int num_devices = 1;  // different ones, of all ranks
  bool emulates_links = false;
  std::string nccl_version{};  // empty in a program without it
};

// NCCL can be used where the program has it, no two ranks share a device, and links are not
// emulated. One rank moves nothing, whatever the wish. Throws AgreedError (config) where `nccl` is
// asked for and cannot be used, with the reason and what to change.
[[nodiscard]] DeviceTransport decide_device_transport(const TransportFacts& facts,
                                                      TransportWish wish);

// The same decision of a world's ranks, each of which has made a device its own. All call it.
[[nodiscard]] DeviceTransport choose_device_transport(Communicator& world,
                                                      TransportWish wish,
                                                      bool emulates_links);

}  // namespace slackline
