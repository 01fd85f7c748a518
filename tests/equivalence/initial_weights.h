#pragma once

#include <cstdint>

#include "model/parameters.h"

namespace slackline::testing {

// Sets every weight of f32 parameters, all of which are here, to its initial value.
inline void set_initial_weights(StreamView stream, Parameters& parameters, std::uint64_t seed) {
  for (const Parameter& parameter : parameters.all()) {
    initialize(stream, parameter, {0, parameter.weight.num_elements()}, parameter.weight, seed);
  }
}

}  // namespace slackline::testing
