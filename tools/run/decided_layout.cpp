#include "tools/run/decided_layout.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/manifest.h"
#include "core/comm/text_exchange.h"
#include "core/cuda/cuda_memory.h"
#include "core/error.h"
#include "core/file_io.h"
#include "core/log.h"
#include "parallel/step/outer_loop.h"
#include "tools/config/config_job.h"
#include "tools/plan/decided_groups.h"
#include "tools/plan/step_plan.h"
#include "tools/plan/strategy_ranking.h"
#include "tools/run/checkpoint_document.h"
#include "tools/run/training_state.h"

namespace slackline {

namespace {

// Asks the kernel what a process may still take of the host's memory; 0 where it does not say.
std::size_t available_host_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::size_t kibibytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %zu", &kibibytes) == 1) {
      return kibibytes << 10U;
    }
  }
  return 0;
}

// The memory that is left for the rank that has least, on the first rank.
std::size_t least_memory_of_ranks(Communicator& world, Device device, int num_devices) {
  std::size_t own = 0;  // of a rehearsal, which takes none
  if (device == Device::cuda) {
    own = cuda::free_bytes() /
          static_cast<std::size_t>((world.size() + num_devices - 1) / std::max(1, num_devices));
  } else if (device == Device::cpu) {
    const int host = world.hosts()[static_cast<std::size_t>(world.rank())];
    own =
        available_host_bytes() / static_cast<std::size_t>(std::ranges::count(world.hosts(), host));
  }
  std::size_t least = own;
  for (const std::string& text : exchange_texts(world, std::to_string(own), "memory of ranks")) {
    least = std::min(least, static_cast<std::size_t>(std::stoull(text)));
  }
  return least;
}

// Refuses what all ranks find alike.
void require_collectives(const TrainConfig& config) {
  try {
    require_groups(config.parallel, config.network.collectives);
  } catch (const ConfigError& error) {
    throw AgreedError(error.what(), ExitCode::config);
  }
}

// What a config may leave open.
struct Layout {
  DataStrategy strategy{};
  int group = 0;  // data ranks of it; 0: one group
  std::int64_t micro_batch = 0;
  std::string source{};  // path of the checkpoint that says so, or why the first rank chose it
};

// A whole number of a document that may have been damaged; -1 where there is none.
std::int64_t number_in(const nlohmann::json& document, const char* key) {
  const auto found = document.find(key);
  return found != document.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
}

// Whether it says as many ranks on every axis.
bool is_layout_of(const nlohmann::json& layout, const ParallelConfig& parallel) {
  return layout.is_object() && number_in(layout, "tensor") == parallel.tensor &&
         number_in(layout, "pipeline") == parallel.pipeline &&
         number_in(layout, "data") == parallel.data;
}

// Whether a kept layout is one that this config could have.
bool fits(const Layout& kept, const TrainConfig& config) {
  const std::vector<DataStrategy> all = all_data_strategies();
  const int data = config.parallel.data;
  const bool has_group = kept.group == 0 || (kept.group > 0 && data % kept.group == 0);
  const std::int64_t share = config.batch.global / data;
  return std::ranges::find(all, kept.strategy) != all.end() && has_group && kept.micro_batch >= 1 &&
         share % kept.micro_batch == 0 &&
         batch_obstacle(config.parallel,
                        config.model,
                        {.global = config.batch.global, .micro = kept.micro_batch})
             .empty();
}

std::optional<Layout> layout_in(const Checkpoint& checkpoint, const TrainConfig& config) {
  const nlohmann::json layout =
      nlohmann::json::parse(checkpoint.documents().layout, nullptr, false);
  const bool has_workers = reading_document(
      checkpoint, "outer", [&] { return OuterLoop::workers_of(checkpoint.documents().outer) > 0; });
  if (has_workers != config.outer.is_on() || !is_layout_of(layout, config.parallel)) {
    return std::nullopt;
  }
  const auto letters = layout.find("data_strategy");
  const std::optional<DataStrategy> strategy =
      letters != layout.end() && letters->is_string()
          ? data_strategy_named(letters->get<std::string>())
          : std::nullopt;
  const Layout kept{.strategy = strategy.value_or(DataStrategy{}),
                    .group = static_cast<int>(number_in(layout, "group")),
                    .micro_batch = number_in(layout, "micro"),
                    .source = checkpoint.path()};
  // Older checkpoints do not say.
  return strategy && fits(kept, config) ? std::optional(kept) : std::nullopt;
}

// Returns what the run had that this one goes on from, where it had as many ranks on every axis and
// workers alike, and where it fits this config's batch: so a resumed run adds in the same order,
// whatever links are measured today.
std::optional<Layout> kept_layout(const TrainConfig& config, bool resume) {
  const std::optional<std::string> path = checkpoint_to_go_on_from(config, resume);
  if (!path || !path_exists(*path + "/" + std::string(kManifestName))) {
    return std::nullopt;
  }
  try {
    return layout_in(Checkpoint(*path), config);
  } catch (const FileError&) {
    return std::nullopt;  // what is wrong with it is said where it is opened
  }
}

// Whether a run whose config names no group goes on with the groups of its checkpoint, for they set
// the order of sums. Those that codecs alone ask for are not made anew, and where none are asked
// for any more those that there were stay. One group stays one where nothing else asks for more.
bool keeps_groups(const Layout& kept, bool is_of_nodes, const TrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  const bool for_codecs = parallel.codes_sums && !parallel.data_strategy.has_groups() &&
                          !parallel.groups_apart &&
                          config.network.collectives != CollectivesWish::hierarchical;
  return kept.group > 0 || (is_of_nodes && for_codecs);
}

// The first rank chooses: what it knows of memory need not be what others know.
Layout choice_of_first_rank(Communicator& world,
                            PlanJob job,
                            const LinkSpeeds& links,
                            const DeviceFacts& device) {
  // All ranks of a host map the same pages, which the kernel counts as memory that is left.
  job.token_file_bytes = 0;
  std::string reason;
  nlohmann::json own;
  try {
    if (world.rank() == 0) {
      const StrategyChoice choice = choose_strategy(job, links, device);
      reason = choice.reason;
      own = {{"strategy", name_of(choice.parallel.data_strategy)},
             {"group", choice.parallel.group},
             {"micro", choice.micro_batch}};
    }
  } catch (const ConfigError& error) {
    own = {{"refusal", error.what()}};
  }
  const nlohmann::json chosen =
      nlohmann::json::parse(broadcast_text(world, 0, own.dump(), "the data strategy"));
  if (chosen.contains("refusal")) {
    throw AgreedError(chosen.at("refusal").get<std::string>(), ExitCode::config);
  }
  return {.strategy = *data_strategy_named(chosen.at("strategy").get<std::string>()),
          .group = chosen.at("group").get<int>(),
          .micro_batch = chosen.at("micro").get<std::int64_t>(),
          .source = reason};
}

void take(const Layout& layout, const LinkSpeeds& links, TrainConfig& config) {
  config.batch.micro = layout.micro_batch;
  config.parallel.data_strategy = layout.strategy;
  config.parallel.chooses_strategy = false;
  if (!config.parallel.groups_apart) {  // else the layout is of a worker's mesh
    config.parallel.group = layout.group;
    config.parallel = with_decided_groups(plan_job(config), links);
  }
}

}  // namespace

void decide_layout(Communicator& world,
                   const LinkSpeeds& probed,
                   const DeviceTransport& transport,
                   const AssumedSpeeds& speeds,
                   bool resume,
                   TrainConfig& config) {
  if (config.device == Device::cuda) {
    config.network.transport = transport.uses_nccl ? TransportWish::nccl : TransportWish::host;
  }
  const auto say = [&](const Lines& lines) {
    if (world.rank() == 0) {
      log_info(lines);
    }
  };
  const LinkSpeeds links = links_of_run(config.network, config.device, probed);
  const bool chooses = config.parallel.chooses_strategy && config.parallel.data > 1;
  const bool is_given = config.parallel.group != 0;
  config.parallel = with_groups_of_nodes(
      config.parallel, config.network.collectives, fewest_ranks_of_node(world.nodes()));
  const bool is_of_nodes = !is_given && config.parallel.group != 0;
  std::optional<Layout> kept = is_given && !chooses ? std::nullopt : kept_layout(config, resume);
  if (kept && !is_given && !chooses && keeps_groups(*kept, is_of_nodes, config)) {
    const int size = kept->group > 0 ? kept->group : config.parallel.data;
    if (size != config.parallel.data_ranks_of_group()) {
      say(Lines{fmt::format("parallel.group: {} is kept from {}", size, kept->source)});
    }
    config.parallel.group = size;
  }
  if (config.parallel.groups_apart && config.parallel.num_workers() == 1) {
    throw AgreedError(
        fmt::format("outer.method: needs two workers or more, and all {} data ranks are on one "
                    "node, which makes one; set parallel.group",
                    config.parallel.data),
        ExitCode::config);
  }
  require_collectives(config);
  if (!chooses) {
    config.parallel.chooses_strategy = false;
    if (!config.parallel.groups_apart) {  // a worker is one group
      config.parallel = with_decided_groups(plan_job(config), links);
    }
    const std::string hint =
        links ? "" : direct_sums_hint(config.parallel, config.network.collectives, world.nodes());
    if (!hint.empty()) {
      say(Lines{hint});
    }
    return;
  }
  if (kept && fits_run(plan_job(config), kept->strategy)) {
    // What the config gives holds.
    kept->group = is_given ? config.parallel.group : kept->group;
    kept->micro_batch = config.batch.micro_given ? config.batch.micro : kept->micro_batch;
    take(*kept, links, config);
    say(Lines{fmt::format(
        "parallel.data_strategy: {} is kept from {}", name_of(kept->strategy), kept->source)});
  } else {
    const DeviceFacts device{
        .memory_bytes = least_memory_of_ranks(world, config.device, transport.num_devices),
        .speeds = speeds};
    const Layout choice = choice_of_first_rank(world, plan_job(config), links, device);
    take(choice, links, config);
    say(Lines{fmt::format("parallel.data_strategy: {} is chosen\n{}",
                          name_of(config.parallel.data_strategy),
                          choice.source)});
  }
}

}  // namespace slackline
