// Times the ways that sums and gathers may take over groups of ranks, in turns:
//
//   build/cpu/collectives_bench --groups 4 --ranks 2 --links FILE
//     ranks as threads, emulated links
//   mpirun -np 8 build/cpu/collectives_bench --groups 4 --ranks 2
//     ranks as processes, in rank order, over the links that there are
//
// direct, sequential and overlapped are core/comm/hierarchy.h's. `ring` is the flat ring that
// collectives are often compared with: n - 1 times a slice goes to the next rank, growing sums with
// it. It stands here alone, for its sums have another order on every rank. `mpi` is what MPI itself
// takes between the same processes. Milliseconds of the slowest rank, median over rounds; `formula`
// is what a plan foresees of the overlapped way over the links of the file or, between processes,
// as they are found to be, and `gain` how much shorter than the ring's its time is.
#if SL_WITH_MPI
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#endif

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "core/comm/hierarchy.h"
#include "core/comm/links/link_probe.h"
#include "core/comm/world.h"
#include "core/error.h"
#include "parallel/predict/collective_times.h"
#include "tools/bench/mpi_thread.h"
#include "tools/bench/timing.h"
#include "tools/cli/command_line.h"

namespace slackline {

namespace {

using Kind = TransferRecord::Kind;
using Way = Hierarchy::Way;

struct Options {
  int groups = 2;
  int ranks = 4;  // in a group
  int rounds = 5;
  std::uint64_t min_bytes = std::uint64_t{1} << 16U;
  std::uint64_t max_bytes = std::uint64_t{1} << 22U;
  std::optional<std::string> links;

  [[nodiscard]] int size() const { return groups * ranks; }
};

// The flat ring over all ranks of a communicator.
class FlatRing {
 public:
  FlatRing(Communicator& comm, std::size_t most_elements) : comm_(comm), arrived_(most_elements) {}

  void run(Kind kind, std::span<float> data) {
    if (kind != Kind::all_gather) {
      reduce_scatter(data);
    }
    if (kind != Kind::reduce_scatter) {
      all_gather(data);
    }
  }

 private:
  // The slice of the rank that stands so far before this one.
  [[nodiscard]] std::span<float> slice(std::span<float> data, int before) const {
    const int rank = (comm_.rank() - before + 2 * comm_.size()) % comm_.size();
    const Slice part = slice_of(data.size(), rank, comm_.size());
    return data.subspan(part.begin, part.count());
  }

  void pass_on(std::span<float> sent, std::span<float> received) {
    const int next = (comm_.rank() + 1) % comm_.size();
    const int previous = (comm_.rank() + comm_.size() - 1) % comm_.size();
    Transfer coming = comm_.receive(Tensor(received), previous, {});
    Transfer going = comm_.send(Tensor(sent), next, {});
    coming.wait();
    going.wait();
  }

  void reduce_scatter(std::span<float> data) {
    for (int step = 0; step + 1 < comm_.size(); ++step) {
      const std::span<float> own = slice(data, step + 2);
      const std::span<float> arrived(arrived_.data(), own.size());
      pass_on(slice(data, step + 1), arrived);
      for (std::size_t i = 0; i < own.size(); ++i) {
        own[i] += arrived[i];
      }
    }
  }

  void all_gather(std::span<float> data) {
    for (int step = 0; step + 1 < comm_.size(); ++step) {
      pass_on(slice(data, step), slice(data, step + 1));
    }
  }

  Communicator& comm_;
  std::vector<float> arrived_;
};

// The same by MPI alone, in place, each rank's slice as in core/comm. Nothing where ranks are no
// processes of its own.
std::function<void()> plain_call(const Communicator& world, Kind kind, std::span<float> data) {
#if SL_WITH_MPI
  std::vector<int> counts;
  std::vector<int> begins;
  for (int rank = 0; rank < world.size(); ++rank) {
    const Slice part = slice_of(data.size(), rank, world.size());
    counts.push_back(static_cast<int>(part.count()));
    begins.push_back(static_cast<int>(part.begin));
  }
  return [kind, data, counts, begins] {
    switch (kind) {
      case Kind::reduce_scatter:
        MPI_Reduce_scatter(
            MPI_IN_PLACE, data.data(), counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        return;
      case Kind::all_gather:
        MPI_Allgatherv(MPI_IN_PLACE,
                       0,
                       MPI_DATATYPE_NULL,
                       data.data(),
                       counts.data(),
                       begins.data(),
                       MPI_FLOAT,
                       MPI_COMM_WORLD);
        return;
      default:
        MPI_Allreduce(MPI_IN_PLACE,
                      data.data(),
                      static_cast<int>(data.size()),
                      MPI_FLOAT,
                      MPI_SUM,
                      MPI_COMM_WORLD);
    }
  };
#else
  static_cast<void>(world);
  static_cast<void>(kind);
  static_cast<void>(data);
  return {};
#endif
}

// Seconds of the overlapped way, as a plan reckons them.
double overlapped_seconds(const Options& options,
                          const Cluster& cluster,
                          Kind kind,
                          std::uint64_t bytes) {
  const ParallelConfig mesh{.data = options.size(), .group = options.ranks};
  const CollectiveCall call{.kind = kind,
                            .elements = bytes / sizeof(float),
                            .element_size = sizeof(float),
                            .hierarchy = mesh.data_hierarchy()};
  return times_of(data_links(mesh, cluster, 0), call, Way::overlapped).seconds().value;
}

class Bench {
 public:
  // `links`: of the formula. `processes`: ranks are those of an MPI world.
  Bench(Communicator& world,
        const Options& options,
        const std::optional<Cluster>& links,
        bool processes)
      : world_(world),
        options_(options),
        links_(links),
        processes_(processes),
        data_(options.max_bytes / sizeof(float)),
        ring_(world, data_.size()) {}

  void run() {
    print(
        fmt::format("{} groups of {} ranks\n"
                    "{:<15}{:>11}{:>11}{:>11}{:>11}{:>12}{:>12}{:>10}{:>8}\n",
                    options_.groups,
                    options_.ranks,
                    "operation",
                    "bytes",
                    "mpi",
                    "direct",
                    "ring",
                    "sequential",
                    "overlapped",
                    "formula",
                    "gain"));
    for (std::uint64_t bytes = options_.min_bytes; bytes <= options_.max_bytes; bytes *= 4) {
      for (const Kind kind : {Kind::reduce_scatter, Kind::all_gather, Kind::all_reduce}) {
        measure(kind, bytes);
      }
    }
  }

 private:
  void print(const std::string& text) const {
    if (world_.rank() == 0) {
      fmt::print("{}", text);
      std::fflush(stdout);
    }
  }

  // Returns the slowest rank's seconds.
  double timed(const std::function<void()>& call) {
    world_.barrier({}).wait();
    return slowest(seconds_of(call));
  }

  double timed_plain(const std::function<void()>& call) {
    world_.barrier({}).wait();
    double seconds = 0.0;
    run_on_mpi_thread(world_, [&] { seconds = seconds_of(call); });
    return slowest(seconds);
  }

  double slowest(double seconds) {
    std::vector<double> all(static_cast<std::size_t>(world_.size()), 0.0);
    all[static_cast<std::size_t>(world_.rank())] = seconds;
    world_.set_hierarchy({});
    world_.all_gather(Tensor(std::span(all)), {}).wait();
    return *std::max_element(all.begin(), all.end());
  }

  void go(Kind kind, const Tensor& data) {
    const SumOrder order{.runs = {options_.ranks, 1}};
    switch (kind) {
      case Kind::reduce_scatter:
        return world_.reduce_scatter(data, {}, order).wait();
      case Kind::all_gather:
        return world_.all_gather(data, {}).wait();
      default:
        return world_.all_reduce(data, {}, order).wait();
    }
  }

  double timed_way(Kind kind, std::span<float> data, Way way) {
    Hierarchy hierarchy{.ranks_in_group = options_.ranks};
    hierarchy.sequential_from = way == Way::sequential ? 0 : Hierarchy::kNever;
    hierarchy.overlapped_from = way == Way::overlapped ? 0 : Hierarchy::kNever;
    world_.set_hierarchy(hierarchy);
    return timed([&] { go(kind, Tensor(data)); });
  }

  void measure(Kind kind, std::uint64_t bytes) {
    const std::span<float> data(data_.data(), bytes / sizeof(float));
    constexpr Way kWays[] = {Way::direct, Way::sequential, Way::overlapped};
    const std::function<void()> plain =
        processes_ ? plain_call(world_, kind, data) : std::function<void()>();
    std::vector<double> ring;
    std::vector<double> mpi;
    std::vector<double> ways[std::size(kWays)];
    for (int round = -1; round < options_.rounds; ++round) {
      std::fill(data.begin(), data.end(), 0.0F);
      const double of_mpi = plain ? timed_plain(plain) : 0.0;
      const double of_ring = timed([&] { ring_.run(kind, data); });
      if (round >= 0) {  // the first finds memory and connections
        mpi.push_back(of_mpi);
        ring.push_back(of_ring);
      }
      for (const Way way : kWays) {
        const double of_way = timed_way(kind, data, way);
        if (round >= 0) {
          ways[static_cast<std::size_t>(way)].push_back(of_way);
        }
      }
    }
    const double in_ring = spread(ring).median;
    const auto in_way = [&](Way way) { return spread(ways[static_cast<std::size_t>(way)]).median; };
    const std::string foreseen =
        links_ ? fmt::format("{:.2f}", 1e3 * overlapped_seconds(options_, *links_, kind, bytes))
               : "-";
    print(fmt::format("{:<15}{:>11}{:>11}{:>11.2f}{:>11.2f}{:>12.2f}{:>12.2f}{:>10}{:>7.1f}%\n",
                      name_of(kind),
                      bytes,
                      plain ? fmt::format("{:.2f}", 1e3 * spread(mpi).median) : "-",
                      1e3 * in_way(Way::direct),
                      1e3 * in_ring,
                      1e3 * in_way(Way::sequential),
                      1e3 * in_way(Way::overlapped),
                      foreseen,
                      100.0 * (1.0 - in_way(Way::overlapped) / in_ring)));
  }

  Communicator& world_;
  Options options_;
  std::optional<Cluster> links_;
  bool processes_;
  std::vector<float> data_;
  FlatRing ring_;
};

int run(int argc, char** argv) {
  Options options;
  CommandLine line("Ways of collectives over groups of ranks", "collectives_bench");
  Command app = line.root();
  app.option("--groups", &options.groups, "groups of ranks", {.limit = Limit::positive});
  app.option("--ranks", &options.ranks, "ranks in a group", {.limit = Limit::positive});
  app.option("--links", &options.links, "a cluster file, whose links are emulated");
  app.option("--min", &options.min_bytes, "smallest tensor in bytes", {.limit = Limit::positive});
  app.option("--max", &options.max_bytes, "largest tensor in bytes", {.limit = Limit::positive});
  app.option("--rounds", &options.rounds, "measurements of each", {.limit = Limit::positive});
  if (!line.parse(argc, argv)) {
    return 0;
  }
  WorldOptions world_options{.threads_per_rank = 0};
  if (options.links) {
    world_options.links = read_emulated_cluster(*options.links);
  }
  const auto world = connect_mpi(world_options);
  if (world->size() == 1) {
    run_local_ranks(options.size(), world_options, [&](Communicator& local) {
      Bench(local, options, world_options.links, false).run();
    });
    return 0;
  }
  if (world->size() != options.size()) {
    throw ConfigError("--groups and --ranks: their product must be the number of ranks, " +
                      std::to_string(world->size()) + "; got " + std::to_string(options.size()));
  }
  const std::optional<Cluster> links =
      world_options.links ? world_options.links : std::make_optional(probe_links(*world));
  Bench(*world, options, links, true).run();
  return 0;
}

}  // namespace

}  // namespace slackline

int main(int argc, char** argv) {
  return slackline::bench_main(slackline::run, argc, argv);
}
