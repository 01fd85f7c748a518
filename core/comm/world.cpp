#include "core/comm/world.h"

#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/comm/engine_communicator.h"
#include "core/comm/local_transport.h"
#include "core/thread_pool.h"

namespace slackline {

namespace {

EngineOptions engine_options(const WorldOptions& options, int ranks_on_node) {
  return {.timeout_seconds = options.timeout_seconds,
          .end_grace_seconds = options.end_grace_seconds,
          .end_expected = options.end_expected,
          .free_cores = ranks_on_node * (options.threads_per_rank + 1) <= num_cores()};
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_world(int size, const WorldOptions& options) {
  SL_CHECK(size >= 1, "a world of " + std::to_string(size) + " ranks");
  // Shared by the communicators of all ranks.
  const auto engine = std::make_shared<Engine>(
      [](MessageListener& listener, EngineOptions&) {
        return std::make_unique<LocalTransport>(listener);
      },
      engine_options(options, size));
  std::vector<std::unique_ptr<Communicator>> world;
  for (int rank = 0; rank < size; ++rank) {
    auto endpoint = std::make_shared<Endpoint>();
    endpoint->engine = engine;
    endpoint->nodes.assign(static_cast<std::size_t>(size), 0);
    world.push_back(std::make_unique<EngineCommunicator>(
        std::move(endpoint),
        Membership{.rank = rank, .members = all_ranks(size), .axis = "world"}));
  }
  return world;
}

void run_local_ranks(int size,
                     const WorldOptions& options,
                     const std::function<void(Communicator& world)>& body) {
  std::vector<std::unique_ptr<Communicator>> world = make_local_world(size, options);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (std::unique_ptr<Communicator>& communicator : world) {
    threads.emplace_back([&] {
      const std::unique_ptr<Communicator> own = std::move(communicator);
      std::string reason = "an unknown exception";
      try {
        body(*own);
        return;
      } catch (const std::exception& failure) {
        reason = failure.what();
        const std::lock_guard lock(mutex);
        first = first ? first : std::current_exception();
      } catch (...) {
        const std::lock_guard lock(mutex);
        first = first ? first : std::current_exception();
      }
      own->fail(reason);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

}  // namespace slackline
