// Times every collective, and send with receive, over sizes, against plain MPI in the same
// processes, in turns:
//
//   mpirun -np 2 build/cpu/comm_bench [--max BYTES] [--rounds N] [--busy]
//
// algbw = bytes of the tensor / time; busbw = algbw times what a link carries of it, by the
// formulas of nccl-tests, so that it can be held against the speed of the link. `speed` is MPI's
// time over ours (above 1: ours is faster), the median over rounds with its range. Ours waits
// without sleep unless --busy says that the ranks' threads have the cores, as they have in
// training.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <mpi.h>

#include "core/comm/world.h"
#include "core/tensor/buffer.h"
#include "tools/bench/mpi_thread.h"
#include "tools/bench/timing.h"
#include "tools/cli/command_line.h"

namespace slackline {

namespace {

using Call = std::function<void()>;

constexpr double kBatchSeconds = 0.01;  // long against the clock, short against its drifts
constexpr int kMostInBatch = 2000;

struct Options {
  std::size_t max_bytes = std::size_t{64} << 20U;
  int rounds = 9;
  bool busy = false;
};

struct Case {
  std::string name;
  double link_share = 1.0;  // busbw / algbw
  Call ours;
  Call plain;
};

double seconds_of(const Call& call, int times) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) {
    call();
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / times;
}

class Bench {
 public:
  Bench(Communicator& world, const Options& options)
      : world_(world),
        options_(options),
        a_("bench", options.max_bytes),
        b_("bench", options.max_bytes) {
    std::memset(a_.data(), 0, a_.bytes());
    std::memset(b_.data(), 0, b_.bytes());
  }

  void run() {
    if (world_.rank() == 0) {
      fmt::print("{} ranks on {} cores\n", world_.size(), std::thread::hardware_concurrency());
      fmt::print("{:<15}{:>10}{:>12}{:>12}{:>12}{:>12}{:>8}{:>7}\n",
                 "operation",
                 "bytes",
                 "ours us",
                 "MPI us",
                 "algbw GB/s",
                 "busbw GB/s",
                 "speed",
                 "best");
    }
    const auto least = std::max<std::size_t>(8, 4 * static_cast<std::size_t>(world_.size()));
    for (std::size_t bytes = least; bytes <= options_.max_bytes; bytes *= 8) {
      for (const Case& c : cases(bytes)) {
        measure(c, bytes);
      }
    }
  }

 private:
  [[nodiscard]] std::vector<Case> cases(std::size_t bytes);
  [[nodiscard]] Case exchange(std::size_t bytes);

  // All ranks agree on the slowest's time.
  double agreed(double seconds) {
    std::vector<double> all(static_cast<std::size_t>(world_.size()), 0.0);
    all[static_cast<std::size_t>(world_.rank())] = seconds;
    world_.all_gather(Tensor(std::span<double>(all)), {}).wait();
    return *std::max_element(all.begin(), all.end());
  }

  double timed(const Call& call, int times) {
    world_.barrier({}).wait();
    return agreed(seconds_of(call, times));
  }

  double timed_plain(const Call& call, int times) {
    world_.barrier({}).wait();
    double seconds = 0.0;
    run_on_mpi_thread(world_, [&] {
      MPI_Barrier(MPI_COMM_WORLD);
      seconds = seconds_of(call, times);
    });
    return agreed(seconds);
  }

  void measure(const Case& c, std::size_t bytes) {
    const double first = std::max(timed(c.ours, 3), 1e-7);
    const int times = std::clamp(static_cast<int>(kBatchSeconds / first), 2, kMostInBatch);
    timed_plain(c.plain, 3);
    std::vector<double> ours;
    std::vector<double> plain;
    std::vector<double> speeds;
    for (int round = 0; round < options_.rounds; ++round) {
      ours.push_back(timed(c.ours, times));
      plain.push_back(timed_plain(c.plain, times));
      speeds.push_back(plain.back() / ours.back());
    }
    if (world_.rank() != 0) {
      return;
    }
    const double time = spread(ours).median;
    const double algbw = static_cast<double>(bytes) / time / 1e9;
    fmt::print("{:<15}{:>10}{:>12.1f}{:>12.1f}{:>12.3f}{:>12.3f}{:>8.2f}{:>7.2f}\n",
               c.name,
               bytes,
               time * 1e6,
               spread(plain).median * 1e6,
               algbw,
               algbw * c.link_share,
               spread(speeds).median,
               spread(plain).low / spread(ours).low);
    std::fflush(stdout);
  }

  Communicator& world_;
  Options options_;
  Buffer a_;
  Buffer b_;
};

// Half of a round trip between ranks 0 and 1.
Case Bench::exchange(std::size_t bytes) {
  const Tensor data = a_.view(DType::u8, Shape{static_cast<std::int64_t>(bytes)});
  const int rank = world_.rank();
  const auto count = static_cast<int>(bytes);
  Call ours = [this, data, rank] {
    if (rank == 0) {
      world_.send(data, 1, {}).wait();
      world_.receive(data, 1, {}).wait();
    } else if (rank == 1) {
      world_.receive(data, 0, {}).wait();
      world_.send(data, 0, {}).wait();
    }
  };
  Call plain = [data, rank, count] {
    if (rank > 1) {
      return;
    }
    for (int turn = 0; turn < 2; ++turn) {
      if (turn == rank) {
        MPI_Send(data.raw(), count, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD);
      } else {
        MPI_Recv(data.raw(), count, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      }
    }
  };
  return {"round trip", 2.0, std::move(ours), std::move(plain)};
}

std::vector<Case> Bench::cases(std::size_t bytes) {
  const auto size = static_cast<std::size_t>(world_.size());
  const auto share = static_cast<double>(size - 1) / static_cast<double>(size);
  const std::size_t elements = bytes / 4 / size * size;
  const auto all = static_cast<int>(elements);
  const auto own = static_cast<int>(elements / size);
  const Tensor a = a_.view(DType::f32, Shape{all});
  const Tensor b = b_.view(DType::f32, Shape{all});
  const auto world = MPI_COMM_WORLD;
  std::vector<Case> cases;
  cases.push_back({"all_reduce",
                   2 * share,
                   [=, this] { world_.all_reduce(a, {}).wait(); },
                   [=] { MPI_Allreduce(MPI_IN_PLACE, a.raw(), all, MPI_FLOAT, MPI_SUM, world); }});
  cases.push_back(
      {"reduce_scatter",
       share,
       [=, this] { world_.reduce_scatter(a, {}).wait(); },
       [=] { MPI_Reduce_scatter_block(MPI_IN_PLACE, a.raw(), own, MPI_FLOAT, MPI_SUM, world); }});
  cases.push_back(
      {"all_gather",
       share,
       [=, this] { world_.all_gather(a, {}).wait(); },
       [=] { MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a.raw(), own, MPI_FLOAT, world); }});
  cases.push_back({"all_to_all",
                   share,
                   [=, this] { world_.all_to_all(a, b, {}).wait(); },
                   [=] { MPI_Alltoall(a.raw(), own, MPI_FLOAT, b.raw(), own, MPI_FLOAT, world); }});
  cases.push_back({"broadcast",
                   1.0,
                   [=, this] { world_.broadcast(a, 0, {}).wait(); },
                   [=] { MPI_Bcast(a.raw(), all, MPI_FLOAT, 0, world); }});
  cases.push_back(exchange(bytes));
  if (bytes <= 64) {
    cases.push_back(
        {"barrier", 0.0, [this] { world_.barrier({}).wait(); }, [=] { MPI_Barrier(world); }});
  }
  return cases;
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line("Communicators against plain MPI", "comm_bench");
  Command app = line.root();
  app.option("--max", &options.max_bytes, "largest tensor in bytes");
  app.option("--rounds", &options.rounds, "measurements of each");
  app.flag("--busy", &options.busy, "wait as in training, where ranks keep the cores busy");
  if (!line.parse(argc, argv)) {
    return 0;
  }
  const auto world = connect_mpi({.threads_per_rank = options.busy ? 1 : 0});
  if (world->size() < 2) {
    fmt::print(stderr, "comm_bench needs mpirun with 2 ranks or more\n");
    return 2;
  }
  Bench(*world, options).run();
  return 0;
}

}  // namespace

}  // namespace slackline

int main(int argc, char** argv) {
  try {
    return slackline::run(argc, argv);
  } catch (const std::exception& problem) {
    fmt::print(stderr, "comm_bench: {}\n", problem.what());
    return 1;
  }
}
