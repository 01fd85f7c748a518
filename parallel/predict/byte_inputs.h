#pragma once

#include "parallel/mesh/rank_plan.h"
#include "parallel/predict/byte_formulas.h"

namespace slackline {

// A job as the byte formulas see it, with the communicators' own rule for small all-reduces.
[[nodiscard]] schedule::ByteInputs byte_inputs(const MeshJob& job);

// Elements that one rank's optimizer updates of a virtual stage, a tied table's copies included;
// a mean over ranks where they do not divide.
[[nodiscard]] double updated_elements(const MeshJob& job, int stage);

}  // namespace slackline
