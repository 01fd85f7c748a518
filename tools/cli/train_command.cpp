#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "core/comm/links/link_probe.h"
#include "core/comm/text_exchange.h"
#include "core/comm/world.h"
#include "core/cuda/cuda_device.h"
#include "core/file_io.h"
#include "core/hash.h"
#include "core/joined_text.h"
#include "core/log.h"
#include "core/shown_text.h"
#include "core/terminal.h"
#include "core/threads/thread_pool.h"
#include "tools/cli/commands.h"
#include "tools/config/config_job.h"
#include "tools/config/train_config.h"
#include "tools/plan/compression_plans.h"
#include "tools/plan/decided_groups.h"
#include "tools/plan/memory_advice.h"
#include "tools/record/card_peak.h"
#include "tools/run/decided_layout.h"
#include "tools/run/rehearsal.h"
#include "tools/run/same_files.h"
#include "tools/run/stop_signal.h"
#include "tools/run/trainer.h"

namespace slackline {

namespace {

// Once a rank has ended with a code other than 0, Open MPI no longer answers those that are still
// in MPI_Finalize, and kills them.
constexpr std::chrono::milliseconds kTimeToFinalize{200};

struct TrainOptions {
  std::string config;
  std::vector<std::string> assignments;
  bool resume = false;
  bool validate = false;
  bool print_config = false;
  int ranks = 1;
};

// What all ranks run alike.
struct Job {
  TrainConfig config;
  std::string resolved;
  bool resume = false;
};

// The run would replace the costs that it is told to go by.
void require_foreign_costs(const TrainConfig& config) {
  const std::string& costs = config.rehearsal.costs;
  if (!costs.empty() && is_same_file(costs, config.run.dir + "/costs.json")) {
    throw ConfigError("rehearsal.costs: " + costs +
                      " is a file that this run writes; copy it, or choose another run.dir");
  }
}

void require_world_fits(const ParallelConfig& parallel, int world_size) {
  if (parallel.num_ranks() != world_size) {
    const int ranks = parallel.num_ranks();
    throw AgreedError(
        with_hint(fmt::format("parallel.tensor x parallel.pipeline x parallel.data: must be the "
                              "number of ranks = {}; got {} x {} x {} = {}",
                              world_size,
                              parallel.tensor,
                              parallel.pipeline,
                              parallel.data,
                              ranks),
                  fmt::format("mpirun -np {0} slackline train ..., or --ranks {0}", ranks)),
        ExitCode::config);
  }
}

std::optional<Cluster> links_to_emulate(const TrainConfig& config) {
  if (!config.network.emulates()) {
    return std::nullopt;
  }
  Cluster cluster = read_emulated_cluster(config.network.links);
  for (Cluster::Link* link : cluster.links()) {
    link->bytes_per_second /= config.message_scale();
  }
  return cluster;
}

std::string link_text(const Cluster::Link& link) {
  const bool node = link.shared_by == Cluster::SharedBy::node;
  return fmt::format("{:.1f} us, {:.3g} MB/s, {} duplex, shared by {}",
                     1e6 * link.latency_seconds,
                     1e-6 * link.bytes_per_second,
                     link.duplex ? "full" : "half",
                     node ? "a node's ranks" : "a pair of ranks");
}

// What network.links = "probe" finds, and what policy critical_path needs where no links are
// emulated. A rehearsal's messages are smaller than those it plans with.
LinkSpeeds probed_links(Communicator& world, const TrainConfig& config) {
  const bool chooses = config.compress.policy == CompressionPolicy::critical_path ||
                       config.parallel.chooses_strategy;
  if ((!config.network.probes() && (!chooses || config.network.emulates())) || world.size() == 1) {
    return std::nullopt;
  }
  const double begin = world.now();
  Cluster cluster = probe_links(world);
  world.set_links(cluster);
  if (world.rank() == 0) {
    log_info(fmt::format("links inside a node: {}; between nodes: {}; probed in {:.3f} s",
                         link_text(cluster.node_link),
                         link_text(cluster.network_link),
                         world.now() - begin));
  }
  for (Cluster::Link* link : cluster.links()) {
    link->bytes_per_second *= config.message_scale();
    link->eager_bytes *= config.message_scale();
  }
  return cluster;
}

// Ranks on nodes with other files or binaries would not train one model.
void require_same_job(Communicator& world, const Job& job) {
  Xxh3 identity;
  identity.update(MappedFile("/proc/self/exe").bytes());
  identity.update(std::as_bytes(std::span(job.resolved)));
  identity.update(std::as_bytes(std::span(&job.resume, 1)));
  const std::vector<std::string> hashes =
      exchange_texts(world, hex_text(identity.digest()), "identity of the job");
  for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] != hashes[0]) {
      throw AgreedError(fmt::format("rank {} has another config, --set or binary than rank 0; all "
                                    "ranks must run the same",
                                    rank),
                        ExitCode::config);
    }
  }
}

// A number that the launcher says, before ranks can ask each other; 1 where it says nothing.
int launched_number(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

// Every process would train all ranks, in one run directory.
void require_one_process(int ranks) {
  const int processes = launched_number("OMPI_COMM_WORLD_SIZE");
  if (processes > 1) {
    throw ConfigError(fmt::format(
        "--ranks: runs ranks as threads of one process, and mpirun started {}; leave out one of "
        "the two; got {}",
        processes,
        ranks));
  }
}

int ranks_on_own_host(const Communicator& world) {
  const std::vector<int>& hosts = world.hosts();
  const int own = hosts[static_cast<std::size_t>(world.rank())];
  return static_cast<int>(std::count(hosts.begin(), hosts.end(), own));
}

// Makes what every rank runs. Where that throws on some, all ranks end: all throw what the first of
// those caught.
template <typename Make>
auto make_on_all_ranks(Communicator& world, Make make) {
  decltype(make()) made;
  std::optional<Error> failure;
  try {
    made = make();
  } catch (const Error& error) {
    failure = error;
  }
  const std::string own =
      failure ? fmt::format("{}{}", static_cast<int>(failure->exit_code()), failure->what()) : "";
  const std::vector<std::string> failures = exchange_texts(world, own, "outcome of the start");
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    if (!failures[rank].empty()) {
      const auto code = static_cast<ExitCode>(failures[rank][0] - '0');
      const std::string where = rank == 0 ? "" : fmt::format("rank {}: ", rank);
      throw AgreedError(Lines{where + failures[rank].substr(1)}, code);
    }
  }
  return made;
}

// How a rank that fails alone ends the others; may end this process.
using EndOthers = void (*)(Communicator& world, const std::exception& error);

void tell_others(Communicator& world, const std::exception& error) {
  world.fail(first_line(error.what()));
}

void end_processes(Communicator& world, const std::exception& error) {
  log_error(Lines{fmt::format("rank {}: {}", world.rank(), error.what())});
  const auto* known = dynamic_cast<const Error*>(&error);
  abort_all(world, known == nullptr ? ExitCode::bug : known->exit_code(), first_line(error.what()));
}

// The others are to know before this rank drops its transfers, which waits for their other ends.
template <typename Run>
ExitCode run_to_end(Communicator& world, const Run& run, EndOthers end_others) {
  try {
    return run();
  } catch (const AgreedError&) {
    throw;
  } catch (const std::exception& error) {
    end_others(world, error);
    throw;
  }
}

ExitCode run_rehearsal(Groups& groups,
                       const LinkSpeeds& links,
                       const Job& job,
                       EndOthers end_others) {
  const auto make = [&] {
    return std::make_unique<Rehearsal>(job.config, job.resolved + "\n", links, groups);
  };
  const std::unique_ptr<Rehearsal> rehearsal = make_on_all_ranks(*groups.everyone, make);
  return run_to_end(
      *groups.everyone, [&] { return rehearsal->run(); }, end_others);
}

// What `act` returns; where memory is too small for it, says with which config it would not be.
template <typename Act>
auto with_memory_advice(const TrainConfig& config,
                        Groups& groups,
                        int num_threads,
                        const Act& act) {
  try {
    return act();
  } catch (const OutOfMemoryError& error) {
    const std::string advice =
        memory_advice(plan_job(config), place_of(groups), num_threads, error.limit());
    throw DeviceError(Lines{fmt::format("{}\n{}", error.what(), advice)});
  } catch (const std::bad_alloc&) {
    throw DeviceError("out of host memory");
  }
}

ExitCode run_trainer(Groups& groups,
                     const LinkSpeeds& links,
                     const Job& job,
                     std::optional<double> peak_flops,
                     EndOthers end_others) {
  const int ranks = ranks_on_own_host(*groups.everyone);
  const int num_threads = default_num_threads(ranks);
  const Trainer::Options options{
      .resume = job.resume,
      .num_threads = num_threads,
      .resolved_config = job.resolved + "\n",
      .links = links,
      .codecs_take_compute =
          ranks * num_threads >= static_cast<int>(std::thread::hardware_concurrency()),
      .peak_flops = peak_flops};
  const auto make = [&] {
    return with_memory_advice(job.config, groups, num_threads, [&] {
      return std::make_unique<Trainer>(job.config, options, groups);
    });
  };
  const std::unique_ptr<Trainer> trainer = make_on_all_ranks(*groups.everyone, make);
  const auto run = [&] {
    return with_memory_advice(job.config, groups, num_threads, [&] { return trainer->run(); });
  };
  return run_to_end(*groups.everyone, run, end_others);
}

// What a card's kernels may be taken to reach of its peaks; of a card that is not known those of
// the slowest one in the table.
AssumedSpeeds speeds_of_card(const std::string& name, DType precision) {
  constexpr std::string_view kSlowest = "NVIDIA A100-SXM4-40GB";
  const std::string_view known = dense_peak_flops(name, precision) > 0.0 ? name : kSlowest;
  return speeds_of_peaks(dense_peak_flops(known, precision), peak_bytes_per_second(known));
}

// How many ranks before this one stand on its host.
int rank_on_host(const Communicator& world) {
  const auto own = world.hosts().begin() + world.rank();
  return static_cast<int>(std::count(world.hosts().begin(), own, *own));
}

ExitCode train_rank(Communicator& world, Job job, EndOthers end_others) {
  require_same_job(world, job);
  require_world_fits(job.config.parallel, world.size());
  require_same_files(world, job.config, job.resume);
  const LinkSpeeds links = probed_links(world, job.config);
  DeviceTransport transport;
  std::optional<double> peak_flops;
  AssumedSpeeds speeds;
  if (job.config.device == Device::cuda) {
    cuda::use_device(rank_on_host(world));
    log_info(fmt::format("rank {}: {}", world.rank(), cuda::device_text()));
    const NetworkConfig& network = job.config.network;
    transport = choose_device_transport(world, network.transport, network.emulates());
    peak_flops =
        transport.num_devices * dense_peak_flops(cuda::device_text(), job.config.precision);
    speeds = speeds_of_card(cuda::device_text(), job.config.precision);
    if (world.rank() == 0 && world.size() > 1) {
      log_info("tensors between devices: " + transport.text);
    }
  }
  decide_layout(world, links, transport, speeds, job.resume, job.config);
  if (world.rank() == 0 && world.size() > 1) {
    log_info(Lines{"ranks:\n" + rank_map(make_mesh(job.config.parallel), world.nodes())});
    if (job.config.parallel.num_groups() > 1) {
      log_info(Lines{collectives_text(job.config.parallel, job.config.model.tie_embeddings)});
    }
  }
  Groups groups(world,
                job.config.parallel,
                job.config.model.tie_embeddings,
                job.config.message_scale(),
                job.config.device,
                transport);
  return job.config.device == Device::rehearsal
             ? run_rehearsal(groups, links, job, end_others)
             : run_trainer(groups, links, job, peak_flops, end_others);
}

// Every rank a thread of this process.
ExitCode train_as_threads(int ranks, WorldOptions options, const Job& job) {
  options.threads_per_rank = default_num_threads(ranks);
  ExitCode code = ExitCode::done;
  run_local_ranks(ranks, options, [&](Communicator& world) {
    const ExitCode own = train_rank(world, job, tell_others);
    if (world.rank() == 0) {
      code = own;
    }
  });
  return code;
}

// One rank of those that mpirun or srun started, or the only one.
ExitCode train_as_launched(WorldOptions options, const Job& job) {
  options.threads_per_rank = default_num_threads(launched_number("OMPI_COMM_WORLD_LOCAL_SIZE"));
  options.end_expected = StopSignal::is_told_to_end;
  std::unique_ptr<Communicator> world = connect_mpi(options);
  if (world->size() == 1) {
    return train_rank(*world, job, tell_others);
  }
  auto code = ExitCode::done;
  try {
    code = train_rank(*world, job, end_processes);
  } catch (const AgreedError& error) {
    if (world->rank() == 0) {
      log_error(Lines{error.what()});
    }
    code = error.exit_code();
  } catch (const std::exception& error) {
    end_processes(*world, error);
  }
  world.reset();
  if (code != ExitCode::done) {
    std::this_thread::sleep_for(kTimeToFinalize);
  }
  return code;
}

ExitCode train(const TrainOptions& options) {
  JsonReader document = JsonReader::parse_file(options.config);
  for (const std::string& assignment : options.assignments) {
    document.set(assignment);
  }
  const Job job{.config = read_train_config(document),
                .resolved = document.resolved(),
                .resume = options.resume};
  if (options.resume && job.config.device == Device::rehearsal) {
    throw ConfigError("--resume: a rehearsal saves nothing to continue from; leave it out");
  }
  if (options.print_config && !options.validate) {
    print_json(job.resolved + "\n");
    return ExitCode::done;
  }
  require_foreign_costs(job.config);
  if (options.ranks > 1) {
    require_one_process(options.ranks);
    require_world_fits(job.config.parallel, options.ranks);
  }
  require_runnable(plan_job(job.config));
  const LinkSpeeds links = links_to_emulate(job.config);
  if (options.validate) {
    if (options.print_config) {
      print_json(job.resolved + "\n");
    } else {
      print_lines(shown_line(options.config) + ": valid\n");
    }
    return ExitCode::done;
  }
  require_built(job.config.device);
  StopSignal::install();
  WorldOptions world{.timeout_seconds = job.config.network.timeout_seconds,
                     .end_grace_seconds = job.config.run.stop_seconds,
                     .links = links};
  world.message_scale = links ? job.config.message_scale() : 1.0;
  const double scaled = static_cast<double>(world.longest_background) / job.config.message_scale();
  world.longest_background = static_cast<std::size_t>(std::ceil(scaled));
  return options.ranks > 1 ? train_as_threads(options.ranks, world, job)
                           : train_as_launched(world, job);
}

}  // namespace

void add_train_command(Command root, ExitCode& code) {
  auto options = std::make_shared<TrainOptions>();
  Command command = root.add_command("train", "Train a model as a config says");
  command.option("CONFIG",
                 &options->config,
                 "JSON config; configs/README.md has every key",
                 {.required = true});
  command.option("--set",
                 &options->assignments,
                 "Change one key: --set optimizer.lr=1e-3",
                 {.single_values = true, .value_name = "KEY=VALUE"});
  command.flag("--resume", &options->resume, "Continue from the run's newest checkpoint");
  command.option("--ranks",
                 &options->ranks,
                 "Ranks as threads of this process, without mpirun",
                 {.limit = Limit::positive});
  command.flag("--validate", &options->validate, "Check the config and end");
  command.flag("--print-config", &options->print_config, "Print the config with all defaults");
  command.footer(
      "Example: slackline train configs/tiny_cpu.json --set run.steps=100\n"
      "Ends with 6 after SIGTERM, SIGINT or SIGUSR1, having saved; --resume goes on from there.");
  command.runs([options, &code] { code = train(*options); });
}

}  // namespace slackline
