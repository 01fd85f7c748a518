#pragma once

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/file_io.h"

namespace slackline {

// Returns the lines of a run directory's metrics.jsonl that are of steps.
[[nodiscard]] inline std::vector<nlohmann::json> step_lines(const std::string& run_dir) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_file(run_dir + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) {
    nlohmann::json json = nlohmann::json::parse(line);
    if (json.contains("loss")) {
      lines.push_back(std::move(json));
    }
  }
  return lines;
}

}  // namespace slackline
