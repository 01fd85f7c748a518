#pragma once

#include <cstdint>
#include <vector>

#include "compress/codec_setting.h"
#include "compress/codec_times.h"
#include "core/tensor/workers.h"

namespace slackline {

// A codec with a shape of message that it may be given (as in CodecTimes).
struct CandidateMessage {
  CodecSetting codec{};
  std::vector<std::int64_t> shape{};
  bool is_added = false;  // by ranks; a boundary's is not

  friend bool operator==(const CandidateMessage&, const CandidateMessage&) = default;
};

// Measures what candidates' codecs take on this rank, by running each a few times on numbers of its
// shape, the lower quartile of which counts; of more than a million elements a part that scales.
// Beside other ranks that do the same, and beside as many busy threads as run a CPU rank's passes:
// so codecs run in a step. `columns` cuts sums of many matrices, which are known by their elements
// alone, into one of that width. Leaves no trace.
[[nodiscard]] std::vector<CodecTimes> measure_codecs(const std::vector<CandidateMessage>& messages,
                                                     std::int64_t columns,
                                                     const Workers& workers);

}  // namespace slackline
