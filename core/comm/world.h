#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/links/cluster.h"
#include "core/error.h"

namespace slackline {

struct WorldOptions {
  double timeout_seconds = 600.0;    // a wait longer than this is a failure (network config)
  int threads_per_rank = 1;          // with ranks on the node, says whether cores are free
  double end_grace_seconds = 0.3;    // how long a wait may last once the end is expected
  bool (*end_expected)() = nullptr;  // e.g. whether SIGTERM came; polled; null: never
  std::optional<Cluster> links{};    // emulate these; ranks then stand on its nodes
  // Messages of Urgency::background are cut to this many bytes, so that others get in between. MPI
  // does not take as many off a sender's hands before they leave (kEagerBytes). The same on every
  // rank.
  std::size_t longest_background = std::size_t{1} << 19U;
  // Emulated links are so many times slower, in a rehearsal whose messages are cut alike
  // (scaled_communicator.h): those that travel whole pass them as fast as if they were cut.
  double message_scale = 1.0;
};

// Communicators of a world whose ranks are threads of this process, in rank order; each belongs to
// one thread. They share one engine, which lasts as long as any of them or their
// transfers.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_local_world(
    int size, const WorldOptions& options = {});

// Runs `body` as every rank of a local world, each on a thread of its own, and returns when all
// have ended. Where ranks throw, the others' transfers fail, and what the first threw is thrown.
void run_local_ranks(int size,
                     const WorldOptions& options,
                     const std::function<void(Communicator& world)>& body);

// Whether a launcher (mpirun, srun) started this process as one of several.
[[nodiscard]] bool launched_by_mpi();

// The world this process was launched into: under mpirun or srun its ranks are the processes, else
// it is alone, and MPI is not touched. Call once. Destroying the last communicator waits for the
// other ranks to do the same, unless a transfer failed.
[[nodiscard]] std::unique_ptr<Communicator> connect_mpi(const WorldOptions& options = {});

// Ends all processes of a world that connect_mpi made, this one with `code`. The others' waits
// throw CommError with `reason`, unless this rank ends because of somebody else's failure. To be
// called by every rank that fails, after it has printed why: the launcher kills the rest as soon as
// one process has ended by itself.
[[noreturn]] void abort_all(Communicator& world, ExitCode code, const std::string& reason);

}  // namespace slackline
