#pragma once

#include <cstdint>
#include <vector>

#include "compress/codec_setting.h"
#include "parallel/plan/bucket_compression.h"
#include "parallel/sync/outer_plan.h"

namespace slackline {

struct RoundPlace {
  int workers = 1;
  int worker = 0;  // this rank's
  std::uint64_t seed = 0;
};

// Says how a rank's differences of an outer round travel where a codec takes them: as the gradients
// of a bucket do, in parts that stand where the rank's buffers have them. Codes matrices and tables
// that get smaller by it: all of a share as one row, or where the codec makes factors the whole
// rows of it. Norms and biases, and what is left of shares, travel plain.
[[nodiscard]] CodedBucket coded_round(const std::vector<OuterShare>& shares,
                                      const std::vector<OptimizerPiece>& pieces,
                                      const CodecSetting& setting,
                                      const RoundPlace& place);

}  // namespace slackline
