#include "tools/run/decided_layout.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "core/error.h"
#include "core/log.h"
#include "tools/config/config_job.h"
#include "tools/plan/decided_groups.h"
#include "tools/plan/step_plan.h"
#include "tools/plan/strategy_ranking.h"
#include "tools/run/training_state.h"

namespace slackline {

namespace {

// The ranks of the node that has the fewest.
int ranks_of_node(const Communicator& world) {
  int fewest = world.size();
  for (const int node : world.nodes()) {
    const auto ranks = std::ranges::count(world.nodes(), node);
    fewest = std::min(fewest, static_cast<int>(ranks));
  }
  return fewest;
}

// Refuses what all ranks find alike.
void require_collectives(const TrainConfig& config, const DeviceTransport& transport) {
  if (config.network.collectives == CollectivesWish::hierarchical && transport.uses_nccl) {
    throw AgreedError(with_hint("network.collectives: must be \"auto\" or \"direct\" where NCCL "
                                "moves tensors; got \"hierarchical\"",
                                "--set network.transport=host"),
                      ExitCode::config);
  }
  try {
    require_groups(config.parallel, config.network.collectives);
  } catch (const ConfigError& error) {
    throw AgreedError(error.what(), ExitCode::config);
  }
}

// Takes what a checkpoint says that its run had.
void keep(const KeptLayout& kept, const LinkSpeeds& links, TrainConfig& config) {
  config.parallel.data_strategy = kept.strategy;
  config.parallel.chooses_strategy = false;
  config.batch.micro = config.batch.micro_given ? config.batch.micro : kept.micro_batch;
  if (!config.parallel.groups_apart) {
    config.parallel.group = kept.group;
    config.parallel = with_decided_groups(plan_job(config), links);
  }
}

void take(const StrategyChoice& choice, TrainConfig& config) {
  config.batch.micro = choice.micro_batch;
  if (config.parallel.groups_apart) {  // the choice is of a worker's mesh
    config.parallel.data_strategy = choice.parallel.data_strategy;
    config.parallel.chooses_strategy = false;
  } else {
    config.parallel = choice.parallel;
  }
}

}  // namespace

void decide_layout(Communicator& world,
                   const LinkSpeeds& probed,
                   const DeviceTransport& transport,
                   bool resume,
                   TrainConfig& config) {
  if (config.device == Device::cuda) {
    config.network.transport = transport.uses_nccl ? TransportWish::nccl : TransportWish::host;
  }
  const LinkSpeeds links = links_of_run(config.network, probed);
  const bool chooses = config.parallel.chooses_strategy && config.parallel.data > 1;
  config.parallel =
      with_groups_of_nodes(config.parallel, config.network.collectives, ranks_of_node(world));
  if (config.parallel.groups_apart && config.parallel.num_workers() == 1) {
    throw AgreedError(
        fmt::format("outer.method: needs two workers or more, and all {} data ranks are on one "
                    "node, which makes one; set parallel.group",
                    config.parallel.data),
        ExitCode::config);
  }
  require_collectives(config, transport);
  if (!chooses) {
    config.parallel.chooses_strategy = false;
    if (!config.parallel.groups_apart) {  // a worker is one group
      config.parallel = with_decided_groups(plan_job(config), links);
    }
    return;
  }
  Lines said;
  const std::optional<KeptLayout> kept = kept_layout(config, resume);
  if (kept && takes_codecs(config.compress, kept->strategy)) {
    keep(*kept, links, config);
    said = Lines{fmt::format(
        "parallel.data_strategy: {} is kept from {}", name_of(kept->strategy), kept->checkpoint)};
  } else {
    const StrategyChoice choice = choose_strategy(plan_job(config), links);
    take(choice, config);
    said = Lines{fmt::format("parallel.data_strategy: {} is chosen\n{}",
                             name_of(config.parallel.data_strategy),
                             choice.reason)};
  }
  if (world.rank() == 0) {
    log_info(said);
  }
}

}  // namespace slackline
