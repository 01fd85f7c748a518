#include "core/comm/device/nccl_communicator.h"

// These stand in a program without NCCL. They are weak: the definitions over NCCL, linked into
// programs that have it, win.
namespace slackline {

[[gnu::weak]] std::string nccl_version() {
  return "";
}

[[gnu::weak]] std::unique_ptr<Communicator> nccl(
    std::unique_ptr<Communicator> staged,
    std::shared_ptr<HostStaging> /*staging*/,  // NOLINT(performance-unnecessary-value-param)
    NcclTraffic /*traffic*/) {
  return staged;
}

}  // namespace slackline
