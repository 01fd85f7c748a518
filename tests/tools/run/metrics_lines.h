#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/file_io.h"

namespace slackline {

// The lines of a run directory's metrics.jsonl that are of steps.
[[nodiscard]] inline std::vector<nlohmann::json> step_lines(const std::string& run_dir) {
  std::vector<nlohmann::json> lines;
  const std::string text = read_file(run_dir + "/metrics.jsonl");
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    nlohmann::json line = nlohmann::json::parse(text.substr(begin, end - begin));
    if (line.contains("loss")) {
      lines.push_back(std::move(line));
    }
    begin = end + 1;
  }
  return lines;
}

}  // namespace slackline
