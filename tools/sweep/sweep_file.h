#pragma once

#include <string>
#include <vector>

#include "tools/config/train_config.h"
#include "tools/sweep/sweep_grid.h"

namespace slackline {

// One run of a sweep.
struct SweepPoint {
  std::string name{};  // of its directory
  SweepSettings settings{};
  TrainConfig config{};
  std::string resolved{};  // the config with all defaults
};

// What a SWEEP.json says.
struct Sweep {
  std::string dir{};                  // holds a directory for each run, and the results
  std::vector<std::string> launch{};  // words before the binary; empty: ranks are threads
  std::vector<std::string> keys{};    // that any point sets, in the file's order
  std::vector<SweepPoint> points{};
};

// Reads a SWEEP.json and checks every point as `train --validate` does. Touches no file but those
// it reads. Throws ConfigError that starts with the path and names the point it is about.
[[nodiscard]] Sweep read_sweep(const std::string& path);

}  // namespace slackline
