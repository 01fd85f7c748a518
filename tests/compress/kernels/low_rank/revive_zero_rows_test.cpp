#include "compress/kernels/low_rank/revive_zero_rows.h"

#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

TEST_CASE("rows of zeros become normal numbers, and others stay") {
  constexpr PhiloxKey kKey = {5, 6};
  for (const std::int64_t columns : {1, 3, 257, 1000}) {
    INFO(columns << " columns");
    Stream stream(test_stream(1));
    GuardedTensor matrix = random_tensor(DType::f32, {4, columns}, {});
    std::vector<double> expected = matrix.values();
    auto* values = matrix.view().data<float>();
    const auto clear = [&](std::int64_t row, std::int64_t kept) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const auto at = static_cast<std::size_t>(row * columns + c);
        values[at] = 0.0F;
        expected[at] = kept >= 0 ? 0.0 : normal_pair(kKey, at)[0];
      }
      if (kept >= 0) {
        const auto at = static_cast<std::size_t>(row * columns + kept);
        values[at] = 1e-30F;
        expected[at] = static_cast<double>(1e-30F);
      }
    };
    clear(1, -1);
    clear(2, columns - 1);  // one number alone
    clear(3, -1);
    revive_zero_rows(stream, matrix, kKey);
    // Rounded to f32, and made of a logarithm and a cosine that may differ in a last bit of double.
    CHECK(worst_mismatch(matrix.values(), expected, {.relative = 1e-7}) == "");
    CHECK(matrix.sentinels_intact());
  }
}

}  // namespace slackline::testing
