#pragma once

#include <string>

#include <fmt/format.h>

#include "core/file_io.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

// A cluster of four ranks on equal nodes. Latency and speed are those of a link between nodes.
struct FourRankLinks {
  int nodes = 1;
  double latency_seconds = 0.0;
  double bytes_per_second = 0.0;
};

// Writes links.json and returns the assignment that makes a run emulate it. A link inside a node
// carries 1e10 bytes a second.
[[nodiscard]] inline std::string write_links(const TrainingRun& run, const FourRankLinks& between) {
  const std::string path = run.path("links.json");
  write_file_atomically(
      path,
      fmt::format(R"({{"nodes": [{{"count": {}, "devices": {}, "memory_bytes": 1e9}}],
  "links": [{{"scope": "node", "latency_seconds": 1e-6, "bytes_per_second": 1e10,
             "duplex": true, "shared_by": "pair", "source": "assumed"}},
            {{"scope": "network", "latency_seconds": {}, "bytes_per_second": {},
             "duplex": true, "shared_by": "pair", "source": "assumed"}}]}})",
                  between.nodes,
                  4 / between.nodes,
                  between.latency_seconds,
                  between.bytes_per_second));
  return "network.links=" + path;
}

}  // namespace slackline
