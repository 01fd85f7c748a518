#include "core/comm/world.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/comm/engine/engine_communicator.h"
#include "core/comm/links/link_model.h"
#include "core/comm/transport/emulated_transport.h"
#include "core/comm/transport/local_transport.h"
#include "core/comm/transport/mpi_world.h"
#include "core/error.h"
#include "core/threads/thread_pool.h"

namespace slackline {

namespace {

// Counts whether the cores hold every rank's threads and a progress thread for each process.
// Launchers bind processes to a part of the cores; then that part's share of the ranks counts.
// Threads of codecs do not: they work while compute waits, or instead of it.
void count_cores(int ranks_on_node, int processes_on_node, EngineOptions& settings) {
  const double all = std::max(1.0, static_cast<double>(std::thread::hardware_concurrency()));
  const double share = std::min(1.0, num_cores() / all);
  const int threads_per_rank = settings.world.threads_per_rank;
  const int threads = ranks_on_node * threads_per_rank;
  settings.free_cores =
      std::max(share * (threads + processes_on_node), threads_per_rank + 1.0) <= num_cores();
  settings.crowded = share * threads > num_cores();
}

void check_fits(const std::optional<Cluster>& links, int size) {
  if (links && links->num_devices() < size) {
    throw ConfigError("network.links: the cluster must have a device for every rank: " +
                      std::to_string(links->num_devices()) + " devices; got " +
                      std::to_string(size) + " ranks");
  }
}

// Returns a rank's view of the world, whose ranks run on `hosts`.
std::unique_ptr<Communicator> world_of_rank(int rank,
                                            const std::vector<int>& hosts,
                                            const std::optional<Cluster>& links,
                                            std::shared_ptr<Engine> engine) {
  Membership all{.rank = rank, .members = std::vector<int>(hosts.size()), .axis = "world"};
  std::iota(all.members.begin(), all.members.end(), 0);
  const auto size = static_cast<int>(hosts.size());
  return std::make_unique<EngineCommunicator>(
      std::make_shared<Endpoint>(Endpoint{.engine = std::move(engine),
                                          .nodes = links ? links->nodes_of_ranks(size) : hosts,
                                          .hosts = hosts}),
      std::move(all));
}

std::unique_ptr<Transport> make_local_transport(MessageListener& listener,
                                                const WorldOptions& options,
                                                int size) {
  auto transport = std::make_unique<LocalTransport>(listener);
  if (!options.links) {
    return transport;
  }
  const std::size_t num_slots = LinkModel::num_slots(*options.links, size);
  auto slots = std::make_unique<LinkModel::Slot[]>(num_slots);
  LinkModel model(*options.links, size, {slots.get(), num_slots});
  return std::make_unique<EmulatedTransport>(
      std::move(transport), std::move(model), std::move(slots));
}

// On the engine's thread, like the start and the end of MPI.
std::unique_ptr<Transport> connect(MessageListener& listener,
                                   const WorldOptions& options,
                                   MpiWorld& world) {
  std::unique_ptr<Transport> transport = make_mpi_transport(listener, world);
  if (!options.links || options.links->num_devices() < world.size) {
    return transport;  // without a device for every rank nobody will use it
  }
  LinkModel model(*options.links, world.size, world.shared);
  return std::make_unique<EmulatedTransport>(std::move(transport), std::move(model), nullptr);
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_world(int size, const WorldOptions& options) {
  SL_CHECK(size >= 1, "a world of " + std::to_string(size) + " ranks");
  check_fits(options.links, size);
  EngineOptions settings{.world = options};
  count_cores(size, 1, settings);
  // Shared by the communicators of all ranks.
  const auto engine = std::make_shared<Engine>(
      [&](MessageListener& listener, EngineOptions&) {
        return make_local_transport(listener, options, size);
      },
      settings);
  const std::vector<int> hosts(static_cast<std::size_t>(size), 0);
  std::vector<std::unique_ptr<Communicator>> world;
  world.reserve(hosts.size());
  for (int rank = 0; rank < size; ++rank) {
    world.push_back(world_of_rank(rank, hosts, options.links, engine));
  }
  if (options.links) {
    world.front()->set_links(*options.links);
  }
  return world;
}

void run_local_ranks(int size,
                     const WorldOptions& options,
                     const std::function<void(Communicator& world)>& body) {
  std::vector<std::unique_ptr<Communicator>> world = make_local_world(size, options);
  std::mutex mutex;
  std::exception_ptr first;
  std::exception_ptr first_told;  // of ranks that another's failure ended
  std::vector<std::thread> threads;
  threads.reserve(world.size());
  const auto run = [&](std::unique_ptr<Communicator>& communicator) {
    const std::unique_ptr<Communicator> own = std::move(communicator);
    const auto keep_first = [&mutex](std::exception_ptr& kept) {
      const std::lock_guard lock(mutex);
      kept = kept ? kept : std::current_exception();
    };
    std::string reason = "an unknown exception";
    try {
      body(*own);
      return;
    } catch (const CommError& failure) {
      reason = failure.what();
      keep_first(first_told);
    } catch (const std::exception& failure) {
      reason = failure.what();
      keep_first(first);
    } catch (...) {
      keep_first(first);
    }
    own->fail(reason);
  };
  std::optional<std::string> cannot_start;
  for (std::unique_ptr<Communicator>& communicator : world) {
    try {
      threads.emplace_back([&run, &communicator] { run(communicator); });
    } catch (const std::system_error& problem) {
      cannot_start =
          fmt::format("rank {}: its thread cannot be started: {}", threads.size(), problem.what());
      communicator->fail(*cannot_start);
      break;
    }
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (cannot_start) {
    throw DeviceError(*cannot_start);
  }
  if (first || first_told) {
    std::rethrow_exception(first ? first : first_told);
  }
}

bool launched_by_mpi() {
  constexpr std::array kVariables = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
  return std::ranges::any_of(kVariables, [](const char* name) { return std::getenv(name); });
}

std::unique_ptr<Communicator> connect_mpi(const WorldOptions& options) {
  if (!launched_by_mpi()) {
    return std::move(make_local_world(1, options).front());
  }
  MpiWorld found{.end_seconds = options.timeout_seconds};
  if (options.links) {
    found.num_shared = [&links = *options.links](int size) {
      return LinkModel::num_slots(links, std::min(size, links.num_devices()));
    };
  }
  auto engine = std::make_shared<Engine>(
      [&](MessageListener& listener, EngineOptions& settings) {
        std::unique_ptr<Transport> transport = connect(listener, options, found);
        const int own_node = found.nodes[static_cast<std::size_t>(found.rank)];
        const auto ranks =
            static_cast<int>(std::count(found.nodes.begin(), found.nodes.end(), own_node));
        count_cores(ranks, ranks, settings);
        settings.clock_offset = found.clock_offset;
        return transport;
      },
      EngineOptions{.world = options});
  check_fits(options.links, found.size);
  std::unique_ptr<Communicator> world =
      world_of_rank(found.rank, found.nodes, options.links, std::move(engine));
  if (options.links) {
    world->set_links(*options.links);
  }
  return world;
}

void abort_all(Communicator& world, ExitCode code, const std::string& reason) {
  auto* const communicator = dynamic_cast<EngineCommunicator*>(&world);
  SL_CHECK(communicator != nullptr, "a communicator that no engine serves");
  communicator->abort(reason, static_cast<int>(code));
}

}  // namespace slackline
