#include "core/comm/network_config.h"

namespace slackline {

NetworkConfig read_network_config(JsonReader section) {
  NetworkConfig config;
  config.timeout_seconds =
      section.number("timeout_seconds", {.default_value = 600.0, .min = 1.0, .max = 1e6});
  config.links = section.string("links", "");
  section.finish();
  return config;
}

}  // namespace slackline
