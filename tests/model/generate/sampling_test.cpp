#include "model/generate/sampling.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "tests/support/catch.h"

namespace slackline {
namespace {

constexpr std::array<float, 4> kLogits = {0.0F, 2.0F, 1.0F, 2.0F};

// How often each token comes up over `draws` positions.
std::vector<double> frequencies(const SamplingOptions& options, std::uint64_t draws) {
  std::vector<double> counts(kLogits.size());
  for (std::uint64_t position = 0; position < draws; ++position) {
    counts[static_cast<std::size_t>(sample_token(kLogits, options, position))] +=
        1.0 / static_cast<double>(draws);
  }
  return counts;
}

}  // namespace

TEST_CASE("temperature 0 takes the most likely token, the lowest id of equals") {
  for (std::uint64_t position = 0; position < 20; ++position) {
    CHECK(sample_token(kLogits, {.temperature = 0.0, .seed = position}, position) == 1);
  }
}

TEST_CASE("samples follow softmax of logits over temperature") {
  constexpr std::uint64_t kDraws = 20000;
  constexpr double kTolerance = 0.015;  // 4 standard deviations at probability 1/2
  for (const double temperature : {0.5, 1.0, 3.0}) {
    double sum = 0.0;
    for (const float logit : kLogits) {
      sum += std::exp(logit / temperature);
    }
    const std::vector<double> found = frequencies({.temperature = temperature}, kDraws);
    for (std::size_t id = 0; id < kLogits.size(); ++id) {
      INFO("temperature " << temperature << ", token " << id);
      CHECK(std::abs(found[id] - std::exp(kLogits[id] / temperature) / sum) < kTolerance);
    }
  }
}

TEST_CASE("top_k leaves the k most likely tokens, lower ids first among equals") {
  CHECK(frequencies({.top_k = 1}, 50)[1] == Approx(1.0));
  const std::vector<double> three = frequencies({.temperature = 5.0, .top_k = 3}, 2000);
  CHECK(three[0] == 0.0);
  CHECK(three[1] > 0.2);
  CHECK(three[2] > 0.2);
  CHECK(three[3] > 0.2);
  // k beyond the vocabulary is no limit.
  CHECK(frequencies({.temperature = 5.0, .top_k = 9}, 2000)[0] > 0.1);
}

TEST_CASE("a draw depends on seed and position alone") {
  const SamplingOptions options{.temperature = 2.0, .seed = 7};
  std::vector<int> forward;
  std::vector<int> backward;
  for (std::uint64_t i = 0; i < 64; ++i) {
    forward.push_back(sample_token(kLogits, options, i));
    backward.push_back(sample_token(kLogits, options, 63 - i));
  }
  CHECK(std::equal(forward.begin(), forward.end(), backward.rbegin()));
  std::vector<int> other;
  for (std::uint64_t i = 0; i < 64; ++i) {
    other.push_back(sample_token(kLogits, {.temperature = 2.0, .seed = 8}, i));
  }
  CHECK(other != forward);
}

TEST_CASE("tokens far below the most likely one are never drawn at low temperature") {
  const std::array<float, 3> logits = {-1e30F, 0.0F, -1e30F};
  for (std::uint64_t position = 0; position < 50; ++position) {
    CHECK(sample_token(logits, {.temperature = 1e-3}, position) == 1);
  }
}

TEST_CASE("a logit that is not finite ends sampling with its place") {
  std::array<float, 3> logits = {0.0F, 1.0F, std::numeric_limits<float>::quiet_NaN()};
  CHECK_THROWS_AS(sample_token(logits, {}, 5), NonFiniteError);
  CHECK_THROWS_WITH(sample_token(logits, {}, 5),
                    Catch::Contains("token 2 at position 5 is not finite"));
}

}  // namespace slackline
