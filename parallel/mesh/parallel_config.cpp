#include "parallel/mesh/parallel_config.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "parallel/schedule/schedule_traits.h"

namespace slackline {

namespace {

constexpr std::array<std::string_view, 2> kTransfers = {"asynchronous", "blocking"};
constexpr std::array<std::string_view, 2> kEmbeddingSyncs = {"fused", "separate"};
constexpr std::int64_t kMaxDegree = 1 << 16;
constexpr std::int64_t kMostRanks = 1 << 20;

std::array<std::string_view, schedule::kNumKinds> schedule_names() {
  std::array<std::string_view, schedule::kNumKinds> names;
  for (std::size_t i = 0; i < names.size(); ++i) {
    names.at(i) = schedule::traits_of(static_cast<schedule::Kind>(i)).name;
  }
  return names;
}

int degree(JsonReader& section, std::string_view axis) {
  return static_cast<int>(section.integer(axis, {.default_value = 1, .min = 1, .max = kMaxDegree}));
}

// The largest degree up to `wanted` that divides all of these.
int nearest_divisor(int wanted, std::initializer_list<int> sizes) {
  int common = 0;
  for (const int size : sizes) {
    common = std::gcd(common, size);
  }
  int nearest = std::min(wanted, common);
  while (common % nearest != 0) {
    --nearest;
  }
  return nearest;
}

void check_tensor(const JsonReader& section, const ParallelConfig& config, const ModelConfig& m) {
  if (m.heads % config.tensor != 0 || m.ffn % config.tensor != 0) {
    section.fail("tensor",
                 fmt::format("must divide model.heads = {} and model.ffn = {}; nearest is {}",
                             m.heads,
                             m.ffn,
                             nearest_divisor(config.tensor, {m.heads, m.ffn})));
  }
  if (m.vocab < config.tensor) {
    section.fail("tensor", fmt::format("must not exceed model.vocab = {}", m.vocab));
  }
}

void check_num_ranks(JsonReader& section, const ParallelConfig& config) {
  // Each of them is at most kMaxDegree.
  if (std::int64_t{config.tensor} * config.pipeline * config.data > kMostRanks) {
    section.fail("data",
                 fmt::format("parallel.tensor x parallel.pipeline x parallel.data may be at most "
                             "{} ranks",
                             kMostRanks));
  }
}

void read_group(JsonReader& section, ParallelConfig& config) {
  if (!section.has("group")) {
    return;
  }
  config.group = degree(section, "group");
  if (config.data % config.group != 0) {
    section.fail("group",
                 fmt::format("must divide parallel.data = {}; nearest is {}",
                             config.data,
                             nearest_divisor(config.group, {config.data})));
  }
}

void read_data_strategy(JsonReader& section, ParallelConfig& config) {
  const std::string name = section.string("data_strategy", name_of(DataStrategy::replicate));
  if (name == "auto") {
    config.chooses_strategy = true;
    return;
  }
  const std::optional<DataStrategy> strategy = data_strategy_named(name);
  if (!strategy) {
    section.fail(
        "data_strategy",
        R"(must be "auto", "replicate", "zero1", "zero2", "zero3", or three letters of N, I and G )"
        R"(for where parameters, gradients and optimizer state live; nearest is "zero1")");
  }
  const DataStrategy nearest = nearest_data_strategy(*strategy);
  if (nearest != *strategy) {
    section.fail("data_strategy",
                 fmt::format("must not share out parameters or gradients more finely than the "
                             R"(optimizer's state; nearest is "{}")",
                             name_of(nearest)));
  }
  config.data_strategy = *strategy;
}

void read_schedule(JsonReader& section, ParallelConfig& config) {
  config.schedule = static_cast<ScheduleName>(
      section.choice("schedule", schedule_names(), static_cast<std::size_t>(config.schedule)));
  config.chunks = degree(section, "chunks");
  const bool interleaved = config.schedule == ScheduleName::interleaved;
  if (config.chunks > 1 && !interleaved) {
    section.fail("chunks", R"(more than 1 needs parallel.schedule "interleaved"; use 1)");
  }
  if (interleaved && config.pipeline == 1) {
    section.fail("schedule", R"("interleaved" needs parallel.pipeline above 1; use "1f1b")");
  }
}

void read_stage_layers(JsonReader& section, ParallelConfig& config, int layers) {
  const std::int64_t stages = std::int64_t{config.pipeline} * config.chunks;
  if (stages > layers) {
    section.fail("pipeline",
                 fmt::format("parallel.pipeline x parallel.chunks = {} stages, and the model has "
                             "{} layers; every stage needs one",
                             stages,
                             layers));
  }
  if (!section.has("stage_layers")) {
    return;
  }
  std::int64_t sum = 0;
  for (const std::int64_t count : section.integers("stage_layers", {.min = 1, .max = layers})) {
    config.stage_layers.push_back(static_cast<int>(count));
    sum += count;
  }
  if (config.stage_layers.empty()) {
    return;
  }
  if (std::ssize(config.stage_layers) != stages || sum != layers) {
    section.fail("stage_layers",
                 fmt::format("must name one count for each of {} stages, adding up to "
                             "model.layers = {}",
                             stages,
                             layers));
  }
}

}  // namespace

Hierarchy ParallelConfig::data_hierarchy() const {
  const GroupWays sizes = ways.value_or(CollectiveWays{}).data;
  return {.ranks_in_group = data_ranks_of_group(),
          .sequential_from = sizes.sequential_from,
          .overlapped_from = sizes.overlapped_from};
}

// Each data rank of a group brings both ends of its pipeline.
Hierarchy ParallelConfig::table_hierarchy() const {
  const GroupWays sizes = ways.value_or(CollectiveWays{}).table;
  return {.ranks_in_group = 2 * data_ranks_of_group(),
          .sequential_from = sizes.sequential_from,
          .overlapped_from = sizes.overlapped_from};
}

ParallelConfig read_parallel_config(JsonReader section, const ModelConfig& model) {
  ParallelConfig config;
  config.tensor = degree(section, "tensor");
  config.pipeline = degree(section, "pipeline");
  config.data = degree(section, "data");
  check_num_ranks(section, config);
  read_group(section, config);
  check_tensor(section, config, model);
  read_schedule(section, config);
  read_stage_layers(section, config, model.layers);
  config.sequence_parallel = section.boolean("sequence_parallel", false);
  read_data_strategy(section, config);
  config.transfers = static_cast<schedule::Transfers>(section.choice("transfers", kTransfers, 0));
  config.embedding_sync =
      static_cast<EmbeddingSync>(section.choice("embedding_sync", kEmbeddingSyncs, 0));
  const schedule::ScheduleTraits& traits = schedule::traits_of(config.schedule);
  if (traits.splits_backward && model.recompute == Recompute::block) {
    section.fail(
        "schedule",
        fmt::format(R"("{}" keeps what weight gradients need, which model.recompute "block" )"
                    R"(drops; use "1f1b")",
                    traits.name));
  }
  section.finish();
  return config;
}

ParallelConfig ParallelConfig::of_worker() const {
  if (!groups_apart) {
    return *this;
  }
  ParallelConfig worker = *this;
  worker.data = data_ranks_of_group();
  worker.group = 0;
  worker.groups_apart = false;
  worker.codes_sums = false;  // a worker is one group
  worker.data_strategy = inside_group(data_strategy);
  return worker;
}

ParallelConfig with_groups_of_nodes(ParallelConfig config,
                                    CollectivesWish wish,
                                    int ranks_of_node) {
  const bool wanted = config.data_strategy.has_groups() || config.chooses_strategy ||
                      config.groups_apart || wish == CollectivesWish::hierarchical;
  if (config.group != 0 || (!wanted && !config.codes_sums)) {
    return config;
  }
  const int replicas = std::max(1, ranks_of_node / (config.tensor * config.pipeline));
  const int group = nearest_divisor(replicas, {config.data});
  // For codecs alone groups are worth it where sums cross nodes and a node has several data ranks:
  // else they would move the pipeline into the nodes, and sums out of them.
  const bool sums_cross_nodes = config.tensor * config.data > ranks_of_node;
  if (wanted || (sums_cross_nodes && group > 1)) {
    config.group = group;
  }
  return config;
}

std::string batch_obstacle(const ParallelConfig& config,
                           const ModelConfig& model,
                           BatchSplit batch) {
  const std::int64_t tokens = batch.micro * model.sequence;
  if (config.sequence_parallel && tokens % config.tensor != 0) {
    return fmt::format(
        "parallel.sequence_parallel: batch.micro x model.sequence = {} "
        "tokens must divide over parallel.tensor = {} ranks; got true",
        tokens,
        config.tensor);
  }
  const std::int64_t micro_batches = batch.global / (batch.micro * config.data);
  if (config.schedule == ScheduleName::interleaved && micro_batches % config.pipeline != 0) {
    return fmt::format(
        "parallel.schedule: \"interleaved\" needs micro-batches a "
        "multiple of parallel.pipeline = {}: batch.global {} makes {} of "
        "them; got \"interleaved\"",
        config.pipeline,
        batch.global,
        micro_batches);
  }
  return "";
}

void check_batch_fits(const ParallelConfig& config, const ModelConfig& model, BatchSplit batch) {
  if (const std::string obstacle = batch_obstacle(config, model, batch); !obstacle.empty()) {
    throw ConfigError(obstacle);
  }
}

std::vector<std::int64_t> micro_batch_choices(const ParallelConfig& config,
                                              const ModelConfig& model,
                                              std::int64_t global) {
  const std::int64_t share = global / config.data;
  std::vector<std::int64_t> choices;
  for (std::int64_t sequences = 1; sequences <= share;
       sequences = sequences < share ? std::min(2 * sequences, share) : share + 1) {
    if (share % sequences == 0 && share / sequences <= kMostPasses / config.num_virtual_stages() &&
        batch_obstacle(config, model, {.global = global, .micro = sequences}).empty()) {
      choices.push_back(sequences);
    }
  }
  return choices;
}

}  // namespace slackline
