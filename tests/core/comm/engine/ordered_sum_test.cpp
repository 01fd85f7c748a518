#include "core/comm/engine/ordered_sum.h"

#include <vector>

#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

// Numbers that fp32 adds with rounding: what a sum is depends on its order.
constexpr float kBig = 16777216.0F;  // 2^24: adding 1 changes nothing
const std::vector<float> kRough = {
    1.0F, kBig, 1.0F, -kBig, 3.0F, -kBig, kBig, 5.0F, kBig, 7.0F, -kBig, 9.0F};

float sum(const std::vector<float>& addends, SumOrder order) {
  float total = 0.0F;
  OrderedSum ordered{.order = order, .output = reinterpret_cast<std::byte*>(&total), .elements = 1};
  for (const float& addend : addends) {
    ordered.inputs.push_back(reinterpret_cast<const std::byte*>(&addend));
  }
  ordered.run();
  return total;
}

std::vector<float> first_of(std::size_t count) {
  return {kRough.begin(), kRough.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

TEST_CASE("a sum adds runs first, then the sums of runs in order") {
  const std::vector<float>& x = kRough;
  CHECK(sum(first_of(4), SumOrder::ranks) == ((x[0] + x[1]) + x[2]) + x[3]);
  CHECK(sum(first_of(4), SumOrder::pairs) == (x[0] + x[1]) + (x[2] + x[3]));
  CHECK(sum(first_of(4), SumOrder::ranks) != sum(first_of(4), SumOrder::pairs));
  CHECK(sum(first_of(6), {.runs = {3, 1}}) == ((x[0] + x[1]) + x[2]) + ((x[3] + x[4]) + x[5]));
  CHECK(sum(first_of(6), {.runs = {3, 1}}) != sum(first_of(6), SumOrder::ranks));
  CHECK(sum(first_of(8), {.runs = {2, 2}}) ==
        ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7])));
  CHECK(sum(first_of(12), {.runs = {2, 3}}) ==
        (((x[0] + x[1]) + (x[2] + x[3])) + (x[4] + x[5])) +
            (((x[6] + x[7]) + (x[8] + x[9])) + (x[10] + x[11])));
}

TEST_CASE("runs of one and a run of all are the sum in rank order") {
  for (const std::size_t count : {2U, 3U, 7U, 12U}) {
    const float in_rank_order = sum(first_of(count), SumOrder::ranks);
    CHECK(sum(first_of(count), {.runs = {static_cast<int>(count), 1}}) == in_rank_order);
    CHECK(sum(first_of(count), {.runs = {1, static_cast<int>(count)}}) == in_rank_order);
  }
  CHECK(sum(first_of(12), {.runs = {2, 6}}) == sum(first_of(12), SumOrder::pairs));
}

TEST_CASE("every order has the same sum of numbers that add exactly") {
  const std::vector<float> whole = {
      1.0F, -2.0F, 3.0F, 4.0F, 5.0F, -6.0F, 7.0F, 8.0F, 9.0F, 0.5F, 1.5F, 2.0F};
  for (const SumOrder order : {SumOrder::ranks,
                               SumOrder::pairs,
                               SumOrder{.runs = {3, 1}},
                               SumOrder{.runs = {2, 3}},
                               SumOrder{.runs = {3, 2}}}) {
    CHECK(sum(whole, order) == 33.0F);
  }
}

TEST_CASE("a sum in two parts keeps in fp32 what bf16 would round away") {
  const std::vector<BFloat16> x = {
      BFloat16(1.0F), BFloat16(1.0F / 256), BFloat16(1.0F / 256), BFloat16(1.0F / 128)};
  const auto bytes_of = [](const auto& value) {
    return reinterpret_cast<const std::byte*>(&value);
  };
  const auto place_of = [](auto& value) { return reinterpret_cast<std::byte*>(&value); };
  BFloat16 whole;
  OrderedSum{.dtype = DType::bf16,
             .order = SumOrder::pairs,
             .inputs = {bytes_of(x[0]), bytes_of(x[1]), bytes_of(x[2]), bytes_of(x[3])},
             .output = place_of(whole),
             .elements = 1}
      .run();
  std::vector<float> parts(2);
  for (std::size_t i = 0; i < 2; ++i) {
    OrderedSum{.dtype = DType::bf16,
               .output_dtype = DType::f32,
               .inputs = {bytes_of(x[2 * i]), bytes_of(x[2 * i + 1])},
               .output = place_of(parts[i]),
               .elements = 1}
        .run();
  }
  CHECK(parts == std::vector<float>{1.0F + 1.0F / 256, 3.0F / 256});
  BFloat16 sum;
  OrderedSum{.dtype = DType::f32,
             .output_dtype = DType::bf16,
             .inputs = {bytes_of(parts[0]), bytes_of(parts[1])},
             .output = place_of(sum),
             .elements = 1}
      .run();
  CHECK(sum == whole);
  CHECK(static_cast<float>(sum) != static_cast<float>(BFloat16(parts[0])) + parts[1]);
}

TEST_CASE("an order fits numbers of ranks that its largest runs divide") {
  CHECK(SumOrder::ranks.fits(1));
  CHECK(SumOrder::ranks.fits(7));
  CHECK(SumOrder::pairs.fits(6));
  CHECK_FALSE(SumOrder::pairs.fits(7));
  CHECK(SumOrder{.runs = {2, 3}}.fits(12));
  CHECK_FALSE(SumOrder{.runs = {2, 3}}.fits(8));
}

}  // namespace slackline::testing
