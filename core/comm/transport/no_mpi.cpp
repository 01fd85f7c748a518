#include "core/comm/transport/mpi_world.h"
#include "core/error.h"

namespace slackline {

std::unique_ptr<Transport> make_mpi_transport(MessageListener& /*listener*/, MpiWorld& /*world*/) {
  throw ConfigError(
      "this binary was built without MPI and cannot be one of several processes; build it where "
      "libopenmpi-dev is installed, or run ranks as threads with --ranks");
}

}  // namespace slackline
