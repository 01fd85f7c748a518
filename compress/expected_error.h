#pragma once

#include "compress/codec.h"
#include "compress/codec_setting.h"

namespace slackline {

// Returns what a codec is expected to lose of a message, as |x - y| / |x|. It orders settings
// before anything was compressed; what a run really loses is the guard's to measure. Values are
// taken as independent and normal, so low_rank is told too much: real matrices have directions that
// carry more than others.
//
//   low_rank   sqrt(1 - r / min(n, m)): every direction carries the same
//   top_k      what is left below the threshold that a share p of normal values exceed
//   random_k   sqrt(1 - p); without error feedback, which scales what is kept, sqrt(1 / p - 1)
//   quantize   measured on normal values with scales of 256 of them: 0.0069 (8 bits), 0.11 (4),
//              0.225 (3), 0.45 (2); with scales of rows and columns 0.0089, 0.104, 0.193, 0.345
//   cast       likewise: 0.0017
//
// All of it is multiplied by growth_of_error().
[[nodiscard]] double expected_error(const CodecSetting& setting, const MatrixShape& shape);

// Returns what a sum loses for each share that one message loses, at most. In two shots it is coded
// once more, with errors that know nothing of the first ones: sqrt(2).
[[nodiscard]] double growth_of_error(const CodecSetting& setting);

}  // namespace slackline
