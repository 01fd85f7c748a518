#include "data/blend.h"

#include "data/data_members.h"
#include "tests/data/golden_arrays.h"
#include "tests/support/catch.h"

namespace slackline {

TEST_CASE("a blend takes what Megatron's takes, sample by sample") {
  const std::string name = GENERATE(as<std::string>(), "even", "skewed", "raw");
  CAPTURE(name);
  const GoldenArrays golden("blend_" + name);
  const std::vector<double> weights = normalized_weights(golden.doubles("weights"));
  REQUIRE(weights == golden.doubles("normalized"));  // to the bit

  REQUIRE(weights.size() >= 2);

  const std::vector<std::int64_t> sizes = golden.integers("member_samples");
  for (std::size_t member = 0; member < weights.size(); ++member) {
    REQUIRE(member_samples(golden.integer("target"), weights[member]) ==
            static_cast<std::uint64_t>(sizes.at(member)));
  }
  const std::vector<std::int64_t> members = golden.integers("dataset_index");
  const std::vector<std::int64_t> samples = golden.integers("sample_index");
  REQUIRE(members.size() == 200);
  const Blend blend(weights, members.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    REQUIRE(blend[i].member == static_cast<std::size_t>(members[i]));
    REQUIRE(blend[i].sample == static_cast<std::uint64_t>(samples[i]));
  }
}

TEST_CASE("a longer blend begins with the shorter one, and counts add up") {
  const std::vector<double> weights = normalized_weights(std::vector<double>{5.0, 1.0, 2.5});
  const Blend shorter(weights, 100);
  const Blend longer(weights, 1000);
  for (std::uint64_t i = 0; i < 100; ++i) {
    REQUIRE(shorter[i].member == longer[i].member);
    REQUIRE(shorter[i].sample == longer[i].sample);
  }
  REQUIRE(longer.taken(0) + longer.taken(1) + longer.taken(2) == 1000);
  REQUIRE(longer.taken(0) == Approx(1000 * weights[0]).margin(1.0));
  REQUIRE(Blend::counts(weights, 1000) ==
          std::vector<std::uint64_t>{longer.taken(0), longer.taken(1), longer.taken(2)});
  REQUIRE(Blend::counts(std::vector<double>{1.0}, 7) == std::vector<std::uint64_t>{7});
}

TEST_CASE("a blend of one member takes its samples in turn and keeps no list of them") {
  const Blend blend(std::vector<double>{1.0}, std::uint64_t{1} << 50U);
  CHECK(blend.taken(0) == std::uint64_t{1} << 50U);
  CHECK(blend[(std::uint64_t{1} << 40U) + 3].sample == (std::uint64_t{1} << 40U) + 3);
  CHECK(blend[5].member == 0);
}

TEST_CASE("many weights add up in NumPy's order") {
  // numpy.sum of arange(1, n + 1) / 10; a running sum gives other last bits from 10 on.
  std::vector<double> weights;
  for (int i = 1; i <= 300; ++i) {
    weights.push_back(i / 10.0);
  }
  const std::vector<double> normalized = normalized_weights(weights);
  REQUIRE(normalized.back() == 30.0 / 4515.0);
}

TEST_CASE("splits round their bounds as Megatron does") {
  const GoldenArrays golden("splits");
  const std::vector<double> weights = golden.doubles("weights");
  const std::vector<std::int64_t> counts = golden.integers("counts");
  const std::vector<std::int64_t> bounds = golden.integers("bounds");
  REQUIRE(weights.size() == std::size_t{9} * 3);
  REQUIRE(counts.size() == 17);
  for (std::size_t w = 0; w < weights.size() / 3; ++w) {
    const Split split = {weights[3 * w], weights[3 * w + 1], weights[3 * w + 2]};
    for (std::size_t c = 0; c < counts.size(); ++c) {
      const auto ours = split_bounds(split, static_cast<std::uint64_t>(counts[c]));
      for (std::size_t part = 0; part < ours.size(); ++part) {
        REQUIRE(ours[part] ==
                static_cast<std::uint64_t>(bounds.at((w * counts.size() + c) * 4 + part)));
      }
    }
  }
}

}  // namespace slackline
