#include "optim/learning_rate.h"

#include <vector>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"

namespace slackline {

namespace {

constexpr std::int64_t kSteps = 10;

OptimizerConfig config_of(LearningRateSchedule schedule) {
  return {.lr = 1.0, .min_lr = 0.2, .schedule = schedule, .warmup_steps = 2};
}

std::vector<double> rates(const OptimizerConfig& config) {
  std::vector<double> result;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    result.push_back(learning_rate(config, step, kSteps));
  }
  return result;
}

void require_rates(LearningRateSchedule schedule, const std::vector<double>& expected) {
  REQUIRE(testing::worst_mismatch(rates(config_of(schedule)), expected, {.absolute = 1e-12}) == "");
}

}  // namespace

TEST_CASE("every schedule warms up to lr and then goes its way to min_lr at the last step") {
  require_rates(LearningRateSchedule::constant, {0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  require_rates(LearningRateSchedule::linear, {0.5, 1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2});
  // 0.2 + 0.4 (1 + cos(pi k / 8)), k = 1 .. 8.
  require_rates(LearningRateSchedule::cosine,
                {0.5,
                 1,
                 0.96955181300451472,
                 0.88284271247461898,
                 0.75307337294603587,
                 0.6,
                 0.44692662705396413,
                 0.31715728752538104,
                 0.23044818699548534,
                 0.2});
  // The last fifth of 10 steps is steps 9 and 10.
  require_rates(LearningRateSchedule::wsd, {0.5, 1, 1, 1, 1, 1, 1, 1, 0.6, 0.2});
}

TEST_CASE("decay_steps say how long wsd falls, at most what the warm-up leaves") {
  OptimizerConfig config = config_of(LearningRateSchedule::wsd);
  config.decay_steps = 5;
  REQUIRE(testing::worst_mismatch(rates(config),
                                  std::vector<double>{0.5, 1, 1, 1, 1, 0.84, 0.68, 0.52, 0.36, 0.2},
                                  {.absolute = 1e-12}) == "");
  config.decay_steps = 1;
  REQUIRE(learning_rate(config, 9, kSteps) == 1.0);
  REQUIRE(learning_rate(config, 10, kSteps) == Approx(0.2));
  config.decay_steps = 100;
  REQUIRE(testing::worst_mismatch(rates(config),
                                  rates(config_of(LearningRateSchedule::linear)),
                                  {.absolute = 1e-12}) == "");
}

TEST_CASE("without warm-up the first step is already on the schedule") {
  OptimizerConfig config = config_of(LearningRateSchedule::linear);
  config.warmup_steps = 0;
  REQUIRE(learning_rate(config, 1, kSteps) == Approx(1.0 - 0.8 / 10.0));
  REQUIRE(learning_rate(config, kSteps, kSteps) == Approx(0.2));
}

TEST_CASE("a warm-up that reaches into the last fifth shortens the decay of wsd") {
  OptimizerConfig config = config_of(LearningRateSchedule::wsd);
  config.warmup_steps = 9;
  REQUIRE(learning_rate(config, 9, kSteps) == Approx(1.0));
  REQUIRE(learning_rate(config, 10, kSteps) == Approx(0.2));
  config.warmup_steps = 10;
  REQUIRE(learning_rate(config, 10, kSteps) == Approx(1.0));
}

TEST_CASE("a run that goes beyond its steps stays at min_lr") {
  for (const auto schedule :
       {LearningRateSchedule::linear, LearningRateSchedule::cosine, LearningRateSchedule::wsd}) {
    REQUIRE(learning_rate(config_of(schedule), 1000, kSteps) == Approx(0.2));
  }
}

TEST_CASE("learning rate 0 is 0 at every step") {
  OptimizerConfig config = config_of(LearningRateSchedule::cosine);
  config.lr = 0.0;
  config.min_lr = 0.0;
  REQUIRE(rates(config) == std::vector<double>(kSteps, 0.0));
}

TEST_CASE("steps are counted from 1") {
  REQUIRE_THROWS_AS(learning_rate(OptimizerConfig{}, 0, kSteps), Error);
}

}  // namespace slackline
