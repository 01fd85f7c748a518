// Every layout gives what one rank gives. Two references: one rank, within the bounds below, and
// the layout of the same tensor and data degrees without a pipeline, bit for bit.

#include <string>
#include <vector>

#include "tests/equivalence/distance.h"
#include "tests/equivalence/layouts.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

// Sums over tensor ranks and over data ranks round in another order than one rank's do: by a few
// times 6e-8, the ulp of fp32. The bounds are four times the worst that any layout shows.
constexpr Distance kFloatRounding{
    .loss = 5e-8,      // 1e-8: errors of single tokens cancel in the mean
    .norm = 4e-6,      // 1e-6 through 30 layers; 1e-7, one ulp of the rounded norm, through 4
    .gradient = 3e-6,  // 7e-7 through 30 layers, 5e-7 through 4
    .weight = 0.07,  // 0.017: g / sqrt(v) turns the rounding of tiny gradients into part of a step
};

// Weights drift apart further; the loss must stay within what is promised for any layout, and the
// norm (1.4e-7 measured) within what rounding does to it.
constexpr Distance kFiftySteps{.loss = 1e-7, .norm = 1e-6, .gradient = 3e-6, .weight = 0.07};

// Rounding to bf16 is noise, and its size a matter of luck with 256 tokens: tensor ranks, which
// round partial products before they add them, are at 0.92 to 1.15 times one rank's distance.
constexpr double kBf16Luck = 1.3;

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

TEST_CASE("a layout gives the same bits run after run") {
  for (const Layout& layout : quick_layouts()) {
    INFO(layout.name);
    CHECK(bit_differences(run_mesh(layout.run), run_mesh(layout.run)) == "");
  }
}

}  // namespace slackline::testing
