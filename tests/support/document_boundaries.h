#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "data/formats/megatron_format.h"

namespace slackline {

// The first sequence of each document of a Megatron data set and, behind them, the number of
// sequences, as the last bytes of its index hold them. REQUIRES: a text set, which has no modes.
inline std::vector<std::uint64_t> document_boundaries(const std::string& prefix) {
  const std::string index = read_file(prefix + ".idx");
  std::uint64_t count = 0;
  std::memcpy(&count, index.data() + megatron::kBoundariesOffset, sizeof count);
  std::vector<std::uint64_t> boundaries(count);
  const std::size_t bytes = count * sizeof(std::uint64_t);
  std::memcpy(boundaries.data(), index.data() + index.size() - bytes, bytes);
  return boundaries;
}

}  // namespace slackline
