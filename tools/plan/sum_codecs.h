#pragma once

#include "compress/compress_config.h"

namespace slackline {

// Whether codecs may come to sit on sums of layers' gradients under a config's policy in a model of
// this width, and what they send grows with the ranks that send it: messages
// that do not add on their way, and those that go to their rows' owners. Then sums go by levels
// (ParallelConfig::sums_by_levels). Factors of a low rank add on their way, and of parts of a
// matrix take more together. Where critical_path may choose the one or the other, sums do.
// They do not where a codec reads second moments, which are of whole tensors, nor where plans that
// are to be replayed cannot be read, which is said where they are made.
[[nodiscard]] bool codes_sums_by_levels(const CompressConfig& config, int hidden);

}  // namespace slackline
