#pragma once

#include <memory>

#include "core/checkpoint/checkpoint.h"
#include "core/tensor/workers.h"
#include "model/boundary_filter.h"
#include "parallel/plan/activation_compression.h"

namespace slackline {

// Makes a filter that passes activations through the codecs that stood between a training's
// pipeline stages: every message is encoded and decoded. There is no error feedback and messages
// leave no state, so that equal rows come out equal, whenever they pass. The filter owns codecs and
// their stream, on the device of the rows.
//
// The rows of a pass are cut into groups of as many tokens as a training message had, and groups
// over tensor ranks as messages were. What remains, fewer tokens than that, is a smaller message of
// the same setting: cut over the ranks where it can be, else one matrix of whole tokens. So are a
// prompt and each single token that a text goes on with, whose one row shares Top-K's budget and
// scales with no other token.
//
// Low-rank factors come from the checkpoint, those of data rank 0; where it has none, they are the
// first ones that the seed draws. Codecs that draw numbers draw for step 0, as training's own
// evaluation does, and for group 0, 1, ... of the pass as micro-batch. On the CUDA device the
// filter blocks until the rows are changed.
[[nodiscard]] std::unique_ptr<BoundaryFilter> make_codec_filter(
    const ActivationCompression& compression, Checkpoint& checkpoint, const Workers& workers);

}  // namespace slackline
