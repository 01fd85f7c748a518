#pragma once

#include <functional>

#include "core/comm/engine/engine_communicator.h"

namespace slackline {

// Runs `job` on the engine's thread, while nobody else calls MPI, and returns when it has ended:
// for measurements against plain MPI. Nothing may be under way.
inline void run_on_mpi_thread(Communicator& world, const std::function<void()>& job) {
  dynamic_cast<EngineCommunicator&>(world).engine().run_here(job);
}

}  // namespace slackline
