#include "core/comm/device/device_transport.h"

#include <string>

#include "core/error.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

constexpr TransportWish kWishes[] = {
    TransportWish::automatic, TransportWish::nccl, TransportWish::host};

// Ranks that NCCL can serve.
TransportFacts suited() {
  return {.num_ranks = 4, .num_devices = 4, .nccl_version = "NCCL 2.28.3"};
}

void require_no_nccl(const TransportFacts& facts,
                     const std::string& reason,
                     const std::string& hint) {
  INFO(reason);
  const DeviceTransport found = decide_device_transport(facts, TransportWish::automatic);
  CHECK_FALSE(found.uses_nccl);
  CHECK(found.num_devices == facts.num_devices);
  CHECK(found.text == "copies on the host: " + reason);
  CHECK_FALSE(decide_device_transport(facts, TransportWish::host).uses_nccl);
  try {
    static_cast<void>(decide_device_transport(facts, TransportWish::nccl));
    FAIL("accepted");
  } catch (const AgreedError& error) {
    CHECK(error.exit_code() == ExitCode::config);
    CHECK_THAT(error.what(),
               Catch::StartsWith("network.transport: must be \"auto\" or \"host\" where " + reason +
                                 "; got \"nccl\"") &&
                   Catch::Contains("hint: " + hint));
  }
}

}  // namespace

TEST_CASE("ranks with a device each move tensors by NCCL unless the host is asked for") {
  for (const TransportWish wish : {TransportWish::automatic, TransportWish::nccl}) {
    const DeviceTransport found = decide_device_transport(suited(), wish);
    CHECK(found.uses_nccl);
    CHECK(found.num_devices == 4);
    CHECK(found.text == "NCCL 2.28.3");
  }
  const DeviceTransport found = decide_device_transport(suited(), TransportWish::host);
  CHECK_FALSE(found.uses_nccl);
  CHECK(found.num_devices == 4);
  CHECK(found.text == "copies on the host: network.transport says so");
}

TEST_CASE("where NCCL cannot be used the host copies, and asking for NCCL says why not") {
  TransportFacts emulated = suited();
  emulated.emulates_links = true;
  require_no_nccl(emulated, "links are emulated", "leave out network.links");
  TransportFacts shared = suited();
  shared.num_devices = 3;
  require_no_nccl(shared, "ranks share a device", "start as many ranks as there are devices, 3");
  TransportFacts without = suited();
  without.nccl_version = "";
  require_no_nccl(without, "this program was built without NCCL", "preset cuda");
}

TEST_CASE("one rank moves nothing, whatever is asked for") {
  for (const TransportWish wish : kWishes) {
    const DeviceTransport found = decide_device_transport({.emulates_links = true}, wish);
    CHECK_FALSE(found.uses_nccl);
    CHECK(found.text == "one rank");
  }
}

}  // namespace slackline
