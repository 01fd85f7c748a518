#pragma once

#include <string>

#include "core/comm/device/device_transport.h"
#include "core/json_reader.h"

namespace slackline {

// Whether sums and gathers over several groups of data ranks go through the groups
// (core/comm/hierarchy.h), or every rank exchanges with every other one.
enum class CollectivesWish { automatic, direct, hierarchical };

// The "network" section.
struct NetworkConfig {
  double timeout_seconds = 600.0;                      // a rank silent for longer counts as failed
  std::string links;                                   // "", "probe" or a cluster file
  TransportWish transport = TransportWish::automatic;  // of tensors of CUDA devices
  CollectivesWish collectives = CollectivesWish::automatic;

  [[nodiscard]] bool probes() const { return links == "probe"; }

  // Links are those of a file, and are emulated.
  [[nodiscard]] bool emulates() const { return !links.empty() && !probes(); }
};

[[nodiscard]] NetworkConfig read_network_config(JsonReader section);

}  // namespace slackline
