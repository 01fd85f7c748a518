#include "parallel/step/step_agreement.h"

#include <array>
#include <string>
#include <vector>

#include "core/comm/world.h"
#include "tests/support/catch.h"

namespace slackline {

TEST_CASE("the gradient norm sums tensors in name order, whatever order they came in") {
  // Behind 2^60 a 4 is less than half a unit and vanishes. No square is negative, but a sum that
  // begins with 2^60 - 2^60 shows the order in spite of being rounded to float.
  std::array<Parameter, 3> parameters;
  std::vector<OptimizerPiece> pieces;
  for (const char* name : {"c", "a", "b"}) {
    Parameter& parameter = parameters.at(pieces.size());
    parameter.spec.name = name;
    pieces.push_back({.parameter = &parameter, .counted = true});
  }
  run_local_ranks(1, {}, [&](Communicator& world) {
    StepAgreement agreement(world, {"c", "a", "b"});
    CHECK(agreement.agree({}, pieces, {4.0, 0x1p60, -0x1p60}).gradient_norm == 2.0);
    CHECK(agreement.agree({}, pieces, {-0x1p60, 4.0, 0x1p60}).gradient_norm == 0.0);
  });
}

}  // namespace slackline
