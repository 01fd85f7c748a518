#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/comm/transport/transport.h"

namespace slackline {

// What MPI knows of the processes of this world.
struct MpiWorld {
  int rank = 0;
  int size = 1;
  std::vector<int> nodes{};    // of every rank, numbered from 0 in rank order
  double clock_offset = 0.0;   // seconds from this host's steady clock to rank 0's
  double end_seconds = 600.0;  // how long the end may wait for the other ranks
  // How many words, all 0 at first, the processes of a host are to share, given the world's size;
  // null: none.
  std::function<std::size_t(int size)> num_shared{};
  std::span<std::atomic<std::int64_t>> shared{};  // until the transport's end
};

// Ranks are processes. Initializes MPI, fills in `world`, and owns MPI until close() or abort();
// the transport is made, opened for groups and ended on one thread, and otherwise called from
// several, one after the other. It needs no more than what the
// standard promises: tags of 15 bits. Every group has a communicator of MPI's own.
[[nodiscard]] std::unique_ptr<Transport> make_mpi_transport(MessageListener& listener,
                                                            MpiWorld& world);

}  // namespace slackline
