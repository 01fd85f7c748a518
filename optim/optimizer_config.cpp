#include "optim/optimizer_config.h"

#include <array>
#include <limits>

namespace slackline {

namespace {

using namespace std::string_view_literals;

// In the order of LearningRateSchedule.
constexpr std::array kScheduleNames = {"constant"sv, "linear"sv, "cosine"sv, "wsd"sv};

// Updates are computed in float, in which a larger number is infinite.
constexpr double kLargest = std::numeric_limits<float>::max();

constexpr std::int64_t kMaxSteps = std::int64_t{1} << 40U;

double read_beta(JsonReader& section, std::string_view key, double default_value) {
  const double beta = section.number(key, {.default_value = default_value, .min = 0.0});
  if (beta >= 1.0) {
    section.fail(key, "must be below 1");
  }
  return beta;
}

}  // namespace

OptimizerConfig read_optimizer_config(JsonReader section) {
  OptimizerConfig config;
  config.lr = section.number("lr", {.default_value = config.lr, .min = 0.0, .max = kLargest});
  config.min_lr =
      section.number("min_lr", {.default_value = config.min_lr, .min = 0.0, .max = kLargest});
  if (config.min_lr > config.lr) {
    section.fail("min_lr", "must be at most " + section.path("lr"));
  }
  config.schedule = static_cast<LearningRateSchedule>(
      section.choice("schedule", kScheduleNames, static_cast<std::size_t>(config.schedule)));
  config.warmup_steps = section.integer(
      "warmup_steps", {.default_value = config.warmup_steps, .min = 0, .max = kMaxSteps});
  if (section.has("decay_steps")) {
    config.decay_steps = section.integer("decay_steps", {.min = 1, .max = kMaxSteps});
    if (config.schedule != LearningRateSchedule::wsd) {
      section.fail("decay_steps", R"(is of optimizer.schedule "wsd"; leave it out)");
    }
  }
  config.beta1 = read_beta(section, "beta1", config.beta1);
  config.beta2 = read_beta(section, "beta2", config.beta2);
  // Moments are float: what is 0 there would divide what was never touched by nothing.
  config.eps = section.number("eps",
                              {.default_value = config.eps,
                               .min = double{std::numeric_limits<float>::min()},
                               .max = kLargest});
  config.weight_decay = section.number(
      "weight_decay", {.default_value = config.weight_decay, .min = 0.0, .max = kLargest});
  config.decay_embeddings = section.boolean("decay_embeddings", config.decay_embeddings);
  config.decay_embeddings_given = section.has("decay_embeddings");
  config.clip_norm = section.number("clip_norm", {.default_value = config.clip_norm, .min = 0.0});
  section.finish();
  return config;
}

}  // namespace slackline
