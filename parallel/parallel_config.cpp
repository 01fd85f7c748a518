#include "parallel/parallel_config.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slackline {

namespace {

constexpr std::array<std::string_view, 4> kSchedules = {"gpipe", "1f1b", "interleaved", "zb_h1"};
constexpr std::array<std::string_view, 2> kStrategies = {"replicate", "zero1"};
constexpr std::array<std::string_view, 2> kTransfers = {"asynchronous", "blocking"};
constexpr std::array<std::string_view, 2> kEmbeddingSyncs = {"fused", "separate"};
constexpr std::int64_t kMaxDegree = 1 << 20;

int degree(JsonReader& section, std::string_view axis) {
  const std::int64_t value =
      section.integer(axis, {.default_value = 1, .min = 1, .max = kMaxDegree});
  if (value != 1) {
    section.fail(axis, "more than one rank is not built yet; use 1");
  }
  return static_cast<int>(value);
}

void read_stage_layers(JsonReader& section, int layers) {
  if (!section.has("stage_layers")) {
    return;
  }
  const std::vector<std::int64_t> counts = section.integers("stage_layers", {.min = 0});
  if (counts != std::vector<std::int64_t>{layers}) {
    section.fail("stage_layers",
                 "must name one count per stage, adding up to model.layers; use [" +
                     std::to_string(layers) + "]");
  }
}

}  // namespace

ParallelConfig read_parallel_config(JsonReader section, int layers) {
  ParallelConfig config;
  config.tensor = degree(section, "tensor");
  config.pipeline = degree(section, "pipeline");
  config.data = degree(section, "data");
  config.schedule = static_cast<Schedule>(section.choice("schedule", kSchedules, 1));
  if (config.schedule == Schedule::interleaved || config.schedule == Schedule::zb_h1) {
    section.fail("schedule", "this schedule is not built yet; use \"1f1b\"");
  }
  if (section.integer("chunks", {.default_value = 1, .min = 1, .max = kMaxDegree}) != 1) {
    section.fail("chunks", "chunks belong to the interleaved schedule, not built yet; use 1");
  }
  if (section.boolean("sequence_parallel", false)) {
    section.fail("sequence_parallel", "needs parallel.tensor above 1, not built yet; use false");
  }
  config.data_strategy = static_cast<DataStrategy>(section.choice("data_strategy", kStrategies, 0));
  if (config.data_strategy == DataStrategy::zero1) {
    section.fail("data_strategy", "needs parallel.data above 1, not built yet; use \"replicate\"");
  }
  config.transfers = static_cast<Transfers>(section.choice("transfers", kTransfers, 0));
  config.embedding_sync =
      static_cast<EmbeddingSync>(section.choice("embedding_sync", kEmbeddingSyncs, 0));
  read_stage_layers(section, layers);
  section.finish();
  return config;
}

}  // namespace slackline
