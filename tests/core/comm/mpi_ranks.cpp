// One rank of a world of processes, started by mpirun from ctest:
//   mpi_ranks checks             every check of comm_checks.h over MPI; exit code 0 if all hold
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include "core/comm/world.h"
#include "core/error.h"
#include "tests/core/comm/comm_checks.h"

namespace slackline::testing {

namespace {

void run_checks(Communicator& world) {
  for (const CommCheck& check : comm_checks()) {
    check.run(world);
    if (world.rank() == 0) {
      std::cout << "passed on " << world.size() << ": " << check.claim << std::endl;
    }
  }
}

int run(const std::string& mode) {
  const auto world = connect_mpi({.timeout_seconds = 60.0});
  try {
    if (mode == "checks") {
      run_checks(*world);
    }
    return 0;
  } catch (const std::exception& failure) {
    std::cerr << "mpi_ranks: " << failure.what() << std::endl;
    abort_all(*world, ExitCode::bug, failure.what());
  }
}

}  // namespace

}  // namespace slackline::testing

int main(int argc, char** argv) {
  return slackline::testing::run(argc > 1 ? argv[1] : "checks");
}
