#include "core/comm/device/device_transport.h"

#include <set>
#include <unistd.h>
#include <vector>

#include "core/comm/device/nccl_communicator.h"
#include "core/comm/text_exchange.h"
#include "core/cuda/cuda_device.h"
#include "core/error.h"
#include "core/host_name.h"

namespace slackline {

namespace {

// Why NCCL cannot move these ranks' tensors, and what would let it.
struct Obstacle {
  std::string reason{};  // empty: nothing is in the way
  std::string hint{};
};

Obstacle nccl_obstacle(const TransportFacts& facts) {
  if (facts.emulates_links) {
    return {"links are emulated", "leave out network.links"};
  }
  if (facts.num_devices < facts.num_ranks) {
    return {"ranks share a device",
            "start as many ranks as there are devices, " + std::to_string(facts.num_devices)};
  }
  if (facts.nccl_version.empty()) {
    return {"this program was built without NCCL",
            "preset cuda builds one with it where NCCL is installed"};
  }
  return {};
}

}  // namespace

DeviceTransport decide_device_transport(const TransportFacts& facts, TransportWish wish) {
  DeviceTransport transport{.num_devices = facts.num_devices};
  const Obstacle obstacle = nccl_obstacle(facts);
  if (facts.num_ranks == 1) {
    transport.text = "one rank";
  } else if (wish == TransportWish::host) {
    transport.text = "copies on the host: network.transport says so";
  } else if (obstacle.reason.empty()) {
    transport.uses_nccl = true;
    transport.text = facts.nccl_version;
  } else if (wish == TransportWish::automatic) {
    transport.text = "copies on the host: " + obstacle.reason;
  } else {
    throw AgreedError(with_hint("network.transport: must be \"auto\" or \"host\" where " +
                                    obstacle.reason + "; got \"nccl\"",
                                obstacle.hint),
                      ExitCode::config);
  }
  return transport;
}

DeviceTransport choose_device_transport(Communicator& world,
                                        TransportWish wish,
                                        bool emulates_links) {
  // The name is the machine's, for nodes of a world may be emulated.
  const std::string host = host_name();
  const std::vector<std::string> places =
      exchange_texts(world, host + " " + cuda::device_id(), "the devices of ranks");
  const std::set<std::string> different(places.begin(), places.end());
  const std::vector<std::string> processes =
      exchange_texts(world, host + " " + std::to_string(getpid()), "the processes of ranks");
  DeviceTransport transport =
      decide_device_transport({.num_ranks = world.size(),
                               .num_devices = static_cast<int>(different.size()),
                               .emulates_links = emulates_links,
                               .nccl_version = nccl_version()},
                              wish);
  transport.ranks_are_processes =
      std::set<std::string>(processes.begin(), processes.end()).size() == processes.size();
  return transport;
}

}  // namespace slackline
