#include "core/comm/links/network_config.h"

#include <array>
#include <string_view>

namespace slackline {

namespace {

constexpr std::array<std::string_view, 3> kTransports = {"auto", "nccl", "host"};
constexpr std::array<std::string_view, 3> kCollectives = {"auto", "direct", "hierarchical"};

}  // namespace

NetworkConfig read_network_config(JsonReader section) {
  NetworkConfig config;
  config.timeout_seconds =
      section.number("timeout_seconds", {.default_value = 600.0, .min = 1.0, .max = 1e6});
  config.links = section.string("links", "");
  config.transport = static_cast<TransportWish>(section.choice("transport", kTransports, 0));
  if (config.transport == TransportWish::nccl && config.emulates()) {
    section.fail(
        "transport",
        R"(must be "auto" or "host" where links are emulated; or leave out network.links)");
  }
  config.collectives = static_cast<CollectivesWish>(section.choice("collectives", kCollectives, 0));
  section.finish();
  return config;
}

}  // namespace slackline
