// Every layout gives what one rank gives. Two references: one rank, within the bounds below, and
// the layout of the same tensor and data degrees without a pipeline, bit for bit.

#include <string>
#include <vector>

#include "tests/equivalence/bounds.h"
#include "tests/equivalence/distance.h"
#include "tests/equivalence/layouts.h"
#include "tests/equivalence/two_step_sums.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

std::vector<Layout> joined(std::vector<Layout> layouts, const std::vector<Layout>& more) {
  layouts.insert(layouts.end(), more.begin(), more.end());
  return layouts;
}

void require_equivalence(const Layout& layout) {
  INFO(layout.name);
  const MeshRunResult result = run_mesh(layout.run);
  const Distance measured = distance(result, run_mesh(on_one_rank(layout.run)));
  CHECK(beyond(measured, kFloatRounding) == "");
  CHECK(bit_differences(result, run_mesh(same_bits(layout.run))) == "");
}

// Distances to one rank's fp32 gradients: bf16 on this layout may be as far as bf16 on one rank.
void require_bf16_equivalence(Layout layout) {
  INFO(layout.name);
  const MeshRunResult exact = run_mesh(on_one_rank(layout.run));
  layout.run.precision = DType::bf16;
  const double alone = gradient_distance(run_mesh(on_one_rank(layout.run)), exact);
  const MeshRunResult result = run_mesh(layout.run);
  CHECK(gradient_distance(result, exact) <= kBf16Luck * alone);
  CHECK(bit_differences(result, run_mesh(same_bits(layout.run))) == "");
}

}  // namespace

TEST_CASE("a few layouts give the numbers of one rank") {
  for (const Layout& layout : quick_layouts()) {
    require_equivalence(layout);
  }
}

TEST_CASE("a few layouts give the bf16 numbers of one rank") {
  for (const Layout& layout : quick_layouts()) {
    require_bf16_equivalence(layout);
  }
}

TEST_CASE("every plain layout gives the numbers of one rank", "[slow]") {
  for (const Layout& layout : plain_layouts()) {
    require_equivalence(layout);
  }
}

TEST_CASE("every special layout gives the numbers of one rank", "[slow]") {
  for (const Layout& layout : special_layouts()) {
    require_equivalence(layout);
  }
}

TEST_CASE("every layout gives the bf16 numbers of one rank", "[slow]") {
  for (const Layout& layout : joined(plain_layouts(), special_layouts())) {
    require_bf16_equivalence(layout);
  }
}

TEST_CASE("fifty steps later layouts still give the numbers of one rank", "[slow]") {
  for (Layout layout : quick_layouts()) {
    INFO(layout.name);
    layout.run.steps = 50;
    const MeshRunResult result = run_mesh(layout.run);
    const Distance measured = distance(result, run_mesh(on_one_rank(layout.run)));
    CHECK(beyond(measured, kFiftySteps) == "");
    CHECK(bit_differences(result, run_mesh(same_bits(layout.run))) == "");
  }
}

TEST_CASE("groups of data ranks have the bits of a sum inside groups and one across them") {
  MeshRun groups{
      .model = {.layers = 2, .hidden = 32, .heads = 4, .sequence = 16, .vocab = 67, .ffn = 96}};
  groups.parallel.data = 4;
  groups.parallel.group = 2;
  MeshRun one_group = groups;
  one_group.parallel.group = 4;
  Interference two_steps;
  two_steps.world = [](Communicator& world) { return std::make_unique<TwoStepSums>(world, 2); };
  const MeshRunResult result = run_mesh(groups);
  CHECK(bit_differences(result, run_mesh(one_group, two_steps)) == "");
  CHECK(bit_differences(result, run_mesh(one_group)) != "");
  CHECK(beyond(distance(result, run_mesh(one_group)), kFloatRounding) == "");
  MeshRun alone = groups;  // groups of one add as one group does
  alone.parallel.group = 1;
  CHECK(bit_differences(run_mesh(alone), run_mesh(one_group)) == "");
}

TEST_CASE("a layout gives the same bits run after run") {
  for (const Layout& layout : quick_layouts()) {
    INFO(layout.name);
    CHECK(bit_differences(run_mesh(layout.run), run_mesh(layout.run)) == "");
  }
}

}  // namespace slackline::testing
