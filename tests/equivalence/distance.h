#pragma once

#include <string>

#include "tests/equivalence/mesh_run.h"
#include "tests/support/closeness.h"

namespace slackline::testing {

// How far one run's numbers are from another's.
struct Distance {
  double loss = 0.0;      // of every step and of evaluation: the largest relative difference
  double norm = 0.0;      // likewise
  double gradient = 0.0;  // of all tensors: the largest relative L2 difference
  double weight = 0.0;    // of all elements: the largest difference, in learning rates
};

[[nodiscard]] Distance distance(const MeshRunResult& actual, const MeshRunResult& expected);

// Relative L2 difference of all gradients together.
[[nodiscard]] double gradient_distance(const MeshRunResult& actual, const MeshRunResult& expected);

// What is further off than `bounds` allow, one line for each; empty when nothing is. Numbers that
// are not finite are off.
[[nodiscard]] Mismatch beyond(const Distance& measured, const Distance& bounds);

// Tensors that differ in any bit, "`what` of NAME differs" for each; empty when none does.
// REQUIRES: the same names and sizes.
[[nodiscard]] Mismatch tensor_differences(const std::string& what,
                                          const LogicalTensors& actual,
                                          const LogicalTensors& expected);

// What differs in any bit; empty when nothing does.
[[nodiscard]] Mismatch bit_differences(const MeshRunResult& actual, const MeshRunResult& expected);

}  // namespace slackline::testing
