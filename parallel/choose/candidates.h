#pragma once

#include <map>
#include <vector>

#include "compress/compress_config.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/schedule/transfer_class.h"

namespace slackline {

// Returns what each site may be compressed by: compress.<site>.candidates, else its codec; where no
// site but parameter_gather is set, a cast and integers of 8 and 4 bits for messages between stages
// and sums, and for gradients and the tied table at a step's end low ranks from a quarter to a 32nd
// of the model's width as well. Sites that are not in it stay plain.
[[nodiscard]] std::map<schedule::Site, std::vector<CodecSetting>> candidates_of(
    const CompressConfig& config, const MeshJob& job);

// Returns the same of one site on a layout that has it, whatever sums passes make.
[[nodiscard]] std::vector<CodecSetting> candidates_at(schedule::Site site,
                                                      const CompressConfig& config,
                                                      int hidden);

}  // namespace slackline
