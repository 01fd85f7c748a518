#include "tests/support/guarded_tensor.h"

#include <cmath>

#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/finite_differences.h"

namespace slackline::testing {

TEST_CASE("sentinels see one byte written on either side") {
  GuardedTensor tensor(DType::bf16, {3});
  REQUIRE(tensor.sentinels_intact());
  auto* bytes = static_cast<std::byte*>(tensor.view().raw());
  bytes[6] = std::byte{0};
  REQUIRE_FALSE(tensor.sentinels_intact());
  GuardedTensor other(DType::f32, {3});
  static_cast<std::byte*>(other.view().raw())[-1] = std::byte{0};
  REQUIRE_FALSE(other.sentinels_intact());
}

TEST_CASE("a fresh tensor is poisoned, and a poisoned element is never close") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const GuardedTensor tensor(dtype, {2});
    REQUIRE(std::isnan(tensor.values()[1]));
    REQUIRE(worst_mismatch(tensor.values(), tensor.values(), {.relative = 1.0, .absolute = 1.0}) !=
            "");
  }
}

TEST_CASE("a mismatch names the worst element") {
  const std::vector<double> expected = {1.0, 2.0, 3.0};
  const std::vector<double> actual = {1.0, 2.1, 3.3};
  REQUIRE(worst_mismatch(actual, expected, {.relative = 0.11}) == "");
  REQUIRE_THAT(worst_mismatch(actual, expected, {.absolute = 0.01}).report,
               Catch::StartsWith("element 2 is 3.3, expected 3") && Catch::Contains("2 of 3"));
  REQUIRE_THAT(worst_mismatch({}, expected, {}).report, Catch::Contains("0 elements, expected 3"));
}

TEST_CASE("finite differences find the gradient of a cubic") {
  const auto f = [](const std::vector<double>& x) { return x[0] * x[0] * x[0] + 2.0 * x[1]; };
  REQUIRE(worst_mismatch(finite_differences(f, {2.0, 5.0}),
                         std::vector<double>{12.0, 2.0},
                         {.absolute = 1e-8}) == "");
}

}  // namespace slackline::testing
