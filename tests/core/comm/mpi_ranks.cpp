// One rank of a world of processes, started by mpirun from ctest:
//   mpi_ranks checks   every check of comm_checks.h and hierarchy_checks.h over MPI; exit code 0 if
//                      all hold
//   mpi_ranks groups   those among them that are about groups of ranks
//   mpi_ranks links    the same over emulated links between four nodes of two ranks
//   mpi_ranks HOW      rank 1 fails: `throws`, `exits`, is `killed` or goes `silent`; the others
//                      print why their wait ended and end with 4; an even number of ranks waits for
//                      a sum through groups of two
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/hierarchy.h"
#include "core/comm/world.h"
#include "core/error.h"
#include "tests/core/comm/comm_checks.h"
#include "tests/core/comm/hierarchy_checks.h"
#include "tests/support/guarded_tensor.h"

namespace slackline::testing {

namespace {

std::atomic<bool> end_expected{false};

extern "C" void note_end(int /*signal*/) {
  end_expected = true;
}

void run_checks(Communicator& world, const std::vector<CommCheck>& checks) {
  for (const CommCheck& check : checks) {
    check.run(world);
    if (world.rank() == 0) {
      std::cout << "passed on " << world.size() << ": " << check.claim << std::endl;
    }
  }
}

void take_seconds(Communicator& world) {
  GuardedTensor data(DType::f32, Shape{25'000});
  data.fill(world.rank());
  world.barrier({}).wait();
  const double begin = world.now();
  world.all_gather(data, {}).wait();
  // Every node's other ranks send half of their slices over its one link.
  const double least = world.size() > 2 ? 0.02 : 0.0;
  expect(world.now() - begin >= least, world, "the time that the links need");
}

void fail(const std::string& how) {
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the others begin to wait
  if (how == "throws") {
    throw std::runtime_error("out of luck");
  }
  if (how == "exits") {
    std::_Exit(9);
  }
  if (how == "killed") {
    std::raise(SIGKILL);
  }
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

void run_failure(Communicator& world, const std::string& how) {
  world.barrier({}).wait();
  if (world.size() % 2 == 0) {
    world.set_hierarchy({.ranks_in_group = 2, .overlapped_from = 0});
  }
  if (world.rank() == 1) {
    fail(how);
  }
  GuardedTensor data(DType::f32, Shape{5000});
  data.fill(1.0);
  const SumOrder order{.runs = {world.hierarchy().ranks_in_group, 1}};
  world.all_reduce(data, {.what = "gradients", .stage = 1, .micro_batch = 3}, order).wait();
}

WorldOptions options_of(const std::string& mode) {
  WorldOptions options{.timeout_seconds = 60.0,
                       .end_expected = [] { return end_expected.load(); },
                       .longest_background = 4096};
  if (mode == "silent") {
    options.timeout_seconds = 1.0;
  }
  if (mode == "links") {
    options.links = Cluster{.nodes = {{.count = 4, .devices = 2}}};
    options.links->network_link = {
        .latency_seconds = 1e-4, .bytes_per_second = 2e6, .shared_by = Cluster::SharedBy::node};
  }
  return options;
}

int run(const std::string& mode) {
  const auto world = connect_mpi(options_of(mode));
  try {
    if (mode == "checks") {
      run_checks(*world, comm_checks());
      run_checks(*world, hierarchy_checks());
    } else if (mode == "groups") {
      run_checks(*world, hierarchy_checks());
    } else if (mode == "links") {
      take_seconds(*world);
    } else {
      run_failure(*world, mode);
    }
    return 0;
  } catch (const CommError& failure) {
    std::cerr << "ended by: " << failure.what() << std::endl;
    abort_all(*world, failure.exit_code(), failure.what());
  } catch (const std::exception& failure) {
    std::cerr << "mpi_ranks: " << failure.what() << std::endl;
    abort_all(*world, ExitCode::device, failure.what());
  }
}

}  // namespace

}  // namespace slackline::testing

int main(int argc, char** argv) {
  std::signal(SIGTERM, slackline::testing::note_end);
  return slackline::testing::run(argc > 1 ? argv[1] : "checks");
}
