#pragma once

#include <string>
#include <vector>

#include "tests/equivalence/mesh_run.h"

namespace slackline::testing {

struct Layout {
  std::string name;
  MeshRun run{};
};

// Every product of tensor, pipeline and data degrees in {1, 2, 4} of 2 to 8 ranks, at plain 1F1B.
[[nodiscard]] std::vector<Layout> plain_layouts();

// Layouts that between them have every schedule and every option of the parallel section, models
// tied and untied, recompute, dropout, uneven stages, and fewer micro-batches than stages.
[[nodiscard]] std::vector<Layout> special_layouts();

// A few of both that run in seconds.
[[nodiscard]] std::vector<Layout> quick_layouts();

// A job of three steps over such a mesh with groups of `group` data ranks; 0: one group.
[[nodiscard]] MeshRun grouped_run(int tensor, int pipeline, int data, int group);

// The same job on one rank, as simple as it gets; numbers are the reference.
[[nodiscard]] MeshRun on_one_rank(const MeshRun& run);

// The layout of the same tensor and data degrees and groups without a pipeline, nor anything else
// that must not change a bit (docs/numerics.md).
[[nodiscard]] MeshRun same_bits(const MeshRun& run);

}  // namespace slackline::testing
