#pragma once

#include "tests/equivalence/distance.h"

// How far a layout's numbers may be from one rank's, each bound with its reason.
namespace slackline::testing {

// Sums over tensor ranks and over data ranks round in another order than one rank's do: by a few
// times 6e-8, the ulp of fp32. The bounds are four times the worst that any layout shows.
inline constexpr Distance kFloatRounding{
    .loss = 5e-8,      // 1e-8: errors of single tokens cancel in the mean
    .norm = 4e-6,      // 1e-6 through 30 layers; 1e-7, one ulp of the rounded norm, through 4
    .gradient = 3e-6,  // 7e-7 through 30 layers, 5e-7 through 4
    .weight = 0.07,  // 0.017: g / sqrt(v) turns the rounding of tiny gradients into part of a step
};

// Weights drift apart further; the loss must stay within what is promised for any layout, and the
// norm (1.4e-7 measured) within what rounding does to it.
inline constexpr Distance kFiftySteps{.loss = 1e-7, .norm = 1e-6, .gradient = 3e-6, .weight = 0.07};

// Rounding to bf16 is noise, and its size a matter of luck with 256 tokens. Tensor ranks add
// partial products in fp32 and round less than one rank does: they are at 0.90 to 1.004 times its
// distance, all other layouts at 1.000.
inline constexpr double kBf16Luck = 1.05;

}  // namespace slackline::testing
