#include "core/comm/device/ordered_sum_cuda.h"

#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

TEST_CASE("sums over ranks have the same bits on the device as on the host") {
  Stream stream(test_stream(1));
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const SumOrder order : {SumOrder::ranks,
                                 SumOrder::pairs,
                                 SumOrder{.runs = {3, 1}},
                                 SumOrder{.runs = {2, 2}},
                                 SumOrder{.runs = {2, 3}}}) {
      for (const std::size_t ranks : {2U, 4U, 6U, 12U}) {
        if (!order.fits(static_cast<int>(ranks))) {
          continue;
        }
        for (const std::int64_t elements : {1, 255, 1025}) {
          std::vector<GuardedTensor> values;
          OrderedSum sum{.dtype = dtype, .order = order, .elements = 0};
          for (std::size_t rank = 0; rank < ranks; ++rank) {
            values.push_back(random_tensor(dtype, {elements}, {.seed = rank + 1}));
          }
          for (GuardedTensor& value : values) {
            sum.inputs.push_back(static_cast<const std::byte*>(value.view().raw()));
          }
          sum.elements = static_cast<std::size_t>(elements);
          GuardedTensor expected(dtype, {elements});
          sum.output = static_cast<std::byte*>(expected.view().raw());
          sum.run();
          GuardedTensor out(dtype, {elements});
          sum.output = static_cast<std::byte*>(out.view().raw());
          cuda::ordered_sum(stream, sum);
          REQUIRE(out.bytes() == expected.bytes());
          REQUIRE(out.sentinels_intact());
          sum.output = static_cast<std::byte*>(values[1].view().raw());  // in place of an input
          cuda::ordered_sum(stream, sum);
          REQUIRE(values[1].bytes() == expected.bytes());
        }
      }
    }
  }
}

// Sums of groups need both (collective_moves.h).
TEST_CASE("sums over ranks that are wider than their tensors, or narrower, have the same bits") {
  Stream stream(test_stream(1));
  for (const auto& [from, to] : {std::pair(DType::bf16, DType::f32), {DType::f32, DType::bf16}}) {
    constexpr std::int64_t kElements = 1025;
    std::vector<GuardedTensor> values;
    OrderedSum sum{.dtype = from, .output_dtype = to, .elements = kElements};
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      values.push_back(random_tensor(from, {kElements}, {.seed = seed}));
    }
    for (GuardedTensor& value : values) {
      sum.inputs.push_back(static_cast<const std::byte*>(value.view().raw()));
    }
    GuardedTensor expected(to, {kElements});
    sum.output = static_cast<std::byte*>(expected.view().raw());
    sum.run();
    GuardedTensor out(to, {kElements});
    sum.output = static_cast<std::byte*>(out.view().raw());
    cuda::ordered_sum(stream, sum);
    REQUIRE(out.bytes() == expected.bytes());
    REQUIRE(out.sentinels_intact());
  }
}

}  // namespace slackline::testing
