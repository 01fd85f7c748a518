#include <set>
#include <string>
#include <vector>

#include "core/comm/nccl_communicator.h"
#include "core/comm/text_exchange.h"
#include "core/cuda/cuda_device.h"

namespace slackline {

DeviceTransport choose_device_transport(Communicator& world, bool emulates_links) {
  const int node = world.nodes()[static_cast<std::size_t>(world.rank())];
  const std::vector<std::string> places =
      exchange_texts(world, std::to_string(node) + " " + cuda::device_id(), "the devices of ranks");
  const std::set<std::string> different(places.begin(), places.end());
  DeviceTransport transport{.num_devices = static_cast<int>(different.size())};
  const std::string version = nccl_version();
  if (world.size() == 1) {
    transport.text = "one rank";
  } else if (emulates_links) {
    transport.text = "copies on the host: links are emulated";
  } else if (different.size() < places.size()) {
    transport.text = "copies on the host: ranks share a device";
  } else if (version.empty()) {
    transport.text = "copies on the host: built without NCCL";
  } else {
    transport.uses_nccl = true;
    transport.text = version;
  }
  return transport;
}

}  // namespace slackline
