#include "optim/optimizer_config.h"

#include <string>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/refusal.h"

namespace slackline {

namespace {

OptimizerConfig read(const std::string& section) {
  return read_optimizer_config(
      JsonReader::parse(R"({"optimizer": )" + section + "}", "run.json").section("optimizer"));
}

std::string refusal(const std::string& section) {
  return testing::refusal_of<ConfigError>([&] { read(section); });
}

}  // namespace

TEST_CASE("an empty optimizer section gives the documented defaults") {
  const OptimizerConfig config = read("{}");
  REQUIRE(config.lr == 3e-4);
  REQUIRE(config.min_lr == 0.0);
  REQUIRE(config.schedule == LearningRateSchedule::cosine);
  REQUIRE(config.warmup_steps == 0);
  REQUIRE_FALSE(config.decay_steps);
  REQUIRE(config.beta1 == 0.9);
  REQUIRE(config.beta2 == 0.95);
  REQUIRE(config.eps == 1e-8);
  REQUIRE(config.weight_decay == 0.1);
  REQUIRE(config.decay_embeddings);
  REQUIRE_FALSE(config.decay_embeddings_given);
  REQUIRE(config.clip_norm == 1.0);
}

TEST_CASE("every key of the optimizer section is read") {
  const OptimizerConfig config =
      read(R"({"lr": 1e-3, "min_lr": 1e-4, "schedule": "wsd", "warmup_steps": 20,
               "decay_steps": 30, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.2, "decay_embeddings": false,
               "clip_norm": 0})");
  REQUIRE(config.lr == 1e-3);
  REQUIRE(config.min_lr == 1e-4);
  REQUIRE(config.schedule == LearningRateSchedule::wsd);
  REQUIRE(config.warmup_steps == 20);
  REQUIRE(config.decay_steps == 30);
  REQUIRE(config.beta1 == 0.8);
  REQUIRE(config.beta2 == 0.99);
  REQUIRE(config.eps == 1e-6);
  REQUIRE(config.weight_decay == 0.2);
  REQUIRE_FALSE(config.decay_embeddings);
  REQUIRE(config.decay_embeddings_given);
  REQUIRE(config.clip_norm == 0.0);
  REQUIRE(read(R"({"schedule": "constant"})").schedule == LearningRateSchedule::constant);
  REQUIRE(read(R"({"schedule": "linear"})").schedule == LearningRateSchedule::linear);
}

TEST_CASE("learning rate 0 is allowed") {
  REQUIRE(read(R"({"lr": 0})").lr == 0.0);
}

TEST_CASE("values out of range are refused with key, rule and value") {
  REQUIRE_THAT(refusal(R"({"lr": -1})"), Catch::Contains("optimizer.lr"));
  REQUIRE_THAT(refusal(R"({"warmup_steps": -1})"), Catch::Contains("optimizer.warmup_steps"));
  REQUIRE_THAT(refusal(R"({"beta1": 1})"),
               Catch::Contains("optimizer.beta1") && Catch::Contains("below 1"));
  REQUIRE_THAT(refusal(R"({"beta2": 1.5})"), Catch::Contains("optimizer.beta2"));
  REQUIRE_THAT(refusal(R"({"beta2": -0.1})"), Catch::Contains("optimizer.beta2"));
  REQUIRE_THAT(refusal(R"({"eps": 0})"), Catch::Contains("optimizer.eps"));
  REQUIRE_THAT(refusal(R"({"eps": 1e-50})"), Catch::Contains("optimizer.eps"));  // 0 in float
  REQUIRE_THAT(refusal(R"({"weight_decay": -0.1})"), Catch::Contains("optimizer.weight_decay"));
  REQUIRE_THAT(refusal(R"({"clip_norm": -1})"), Catch::Contains("optimizer.clip_norm"));
}

TEST_CASE("numbers that are infinite in float are refused") {
  for (const std::string key : {"lr", "eps", "weight_decay"}) {
    INFO(key);
    REQUIRE_THAT(refusal("{\"" + key + "\": 1e39}"),
                 Catch::Contains("optimizer." + key) && Catch::Contains("at most"));
    REQUIRE(refusal("{\"" + key + "\": 3e38}") == "accepted");
  }
}

TEST_CASE("decay_steps are of wsd alone") {
  REQUIRE_THAT(refusal(R"({"schedule": "wsd", "decay_steps": 0})"),
               Catch::Contains("optimizer.decay_steps"));
  REQUIRE_THAT(refusal(R"({"decay_steps": 3})"),
               Catch::Contains("optimizer.decay_steps") && Catch::Contains("wsd"));
}

TEST_CASE("min_lr above lr is refused") {
  REQUIRE_THAT(refusal(R"({"lr": 1e-4, "min_lr": 1e-3})"),
               Catch::Contains("optimizer.min_lr") && Catch::Contains("at most optimizer.lr") &&
                   Catch::Contains("0.001"));
  REQUIRE(refusal(R"({"lr": 1e-3, "min_lr": 1e-3})") == "accepted");
}

TEST_CASE("unknown keys and schedules are refused with the nearest known one") {
  REQUIRE_THAT(refusal(R"({"weight_decy": 0.1})"), Catch::Contains("weight_decay"));
  REQUIRE_THAT(refusal(R"({"schedule": "cosin"})"), Catch::Contains("cosine"));
}

}  // namespace slackline
