// Sums and gathers that go through groups of data ranks change no bit of a run: over data
// strategies, pipelines, tensor ranks, numbers of groups, precisions, tied tables and codecs.

#include <array>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "tests/equivalence/distance.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

constexpr int kDataRanks = 8;

constexpr GroupWays kSequential{.sequential_from = 0};
constexpr GroupWays kOverlapped{.overlapped_from = 0};
// Buckets of these small models go both ways and directly.
constexpr GroupWays kBySize{.sequential_from = 2048, .overlapped_from = 16384};
constexpr std::array<GroupWays, 3> kWays = {kSequential, kOverlapped, kBySize};

struct Axes {
  int pipeline = 1;
  int tensor = 1;
  int group = kDataRanks;  // data ranks of a group
};

MeshRun run_of(const Axes& axes) {
  MeshRun run{
      .model = {.layers = 2, .hidden = 16, .heads = 2, .sequence = 8, .vocab = 67, .ffn = 32}};
  run.steps = 2;
  run.parallel.pipeline = axes.pipeline;
  run.parallel.tensor = axes.tensor;
  run.parallel.data = kDataRanks;
  run.parallel.group = axes.group;
  run.global_batch = std::int64_t{2} * kDataRanks;
  run.micro_batch = 1;
  return run;
}

MeshRun through_groups(MeshRun run, const GroupWays& ways) {
  run.parallel.ways = CollectiveWays{.data = ways, .table = ways};
  return run;
}

std::string text_of(const MeshRun& run) {
  const ParallelConfig& parallel = run.parallel;
  return fmt::format("{} on tensor {} x pipeline {} x {} groups of {}",
                     letters_of(parallel.data_strategy),
                     parallel.tensor,
                     parallel.pipeline,
                     parallel.num_groups(),
                     parallel.data_ranks_of_group());
}

// The results of direct runs, made when they are first asked for. Strategies whose gradients live
// alike have the same bits (data_strategy_test.cpp).
class DirectRuns {
 public:
  [[nodiscard]] const MeshRunResult& of(const MeshRun& run) {
    const ParallelConfig& parallel = run.parallel;
    const auto [found, is_new] = results_.try_emplace({parallel.data_strategy.gradients,
                                                       parallel.tensor,
                                                       parallel.pipeline,
                                                       parallel.data_ranks_of_group()});
    if (is_new) {
      found->second = run_mesh(run);
    }
    return found->second;
  }

 private:
  std::map<std::tuple<Extent, int, int, int>, MeshRunResult> results_;
};

constexpr std::array<int, 3> kGroups = {8, 4, 2};  // data ranks of one

void require_bits_of_direct(const DataStrategy& strategy,
                            const Axes& axes,
                            const GroupWays& ways,
                            DirectRuns& direct) {
  MeshRun run = run_of(axes);
  run.parallel.data_strategy = strategy;
  INFO(text_of(run));
  CHECK(bit_differences(run_mesh(through_groups(run, ways)), direct.of(run)) == "");
}

}  // namespace

// Any two settings of strategy, pipeline, tensor ranks, groups and ways meet in some run.
TEST_CASE("collectives through groups have the bits of direct ones for each pair of settings") {
  const std::vector<DataStrategy> strategies = all_data_strategies();
  DirectRuns direct;
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    for (std::size_t g = 0; g < kGroups.size(); ++g) {
      const Axes axes{.pipeline = 1 + static_cast<int>((i + g) % 2),
                      .tensor = 1 + static_cast<int>((i / 2 + g / 2) % 2),
                      .group = kGroups.at(g)};
      require_bits_of_direct(strategies[i], axes, kWays.at((i + g) % kWays.size()), direct);
    }
  }
}

// The list has a step for each level then.
TEST_CASE("sums by levels have the bits of those of all ranks at once") {
  DirectRuns direct;
  for (const DataStrategy& strategy : all_data_strategies()) {
    if (strategy.has_groups()) {
      continue;
    }
    for (const int group : {4, 2}) {
      for (const auto& [pipeline, tensor] : {std::pair{1, 1}, {2, 1}, {1, 2}}) {
        MeshRun run = run_of({.pipeline = pipeline, .tensor = tensor, .group = group});
        run.parallel.data_strategy = strategy;
        const MeshRunResult& at_once = direct.of(run);
        run.parallel.codes_sums = true;
        INFO(text_of(run));
        CHECK(bit_differences(run_mesh(run), at_once) == "");
      }
    }
  }
}

TEST_CASE("collectives through groups have the bits of direct ones on every layout", "[slow]") {
  DirectRuns direct;
  for (const DataStrategy& strategy : all_data_strategies()) {
    for (const int group : kGroups) {
      for (const int pipeline : {1, 2}) {
        for (const int tensor : {1, 2}) {
          for (const GroupWays& ways : kWays) {
            const Axes axes{.pipeline = pipeline, .tensor = tensor, .group = group};
            require_bits_of_direct(strategy, axes, ways, direct);
          }
        }
      }
    }
  }
}

TEST_CASE("collectives through groups have the bits of direct ones under bf16 and on any table") {
  for (const char* letters : {"NNN", "NNG", "GGG"}) {
    for (const EmbeddingSync sync : {EmbeddingSync::fused, EmbeddingSync::separate}) {
      MeshRun run = run_of({.pipeline = 2, .group = 4});
      run.parallel.data_strategy = *data_strategy_named(letters);
      run.parallel.embedding_sync = sync;
      run.precision = DType::bf16;
      const MeshRunResult direct = run_mesh(run);
      for (const GroupWays& ways : kWays) {
        INFO(text_of(run));
        CHECK(bit_differences(run_mesh(through_groups(run, ways)), direct) == "");
      }
    }
  }
}

// Messages of low_rank and cast add over ranks in the order of groups, those of quantize are
// gathered; zero1 cuts both by rows.
TEST_CASE("collectives through groups have the bits of direct ones when gradients are coded") {
  for (const char* codec : {R"({"codec": "low_rank", "rank": 2})",
                            R"({"codec": "cast"})",
                            R"({"codec": "quantize", "bits": 8})"}) {
    for (const DataStrategy& strategy : {DataStrategy::replicate, DataStrategy::zero1}) {
      MeshRun run = run_of({.pipeline = 2, .group = 4});
      run.parallel.data_strategy = strategy;
      run.compress = read_compress_config(JsonReader::parse(
          fmt::format(R"({{"policy": "all", "data_gradient": {0}, "embedding": {0}}})", codec),
          "test"));
      const MeshRunResult direct = run_mesh(run);
      for (const GroupWays& ways : {kSequential, kOverlapped}) {
        INFO(text_of(run) << ", " << codec);
        CHECK(bit_differences(run_mesh(through_groups(run, ways)), direct) == "");
      }
    }
  }
}

// Messages of low_rank add within a group first.
TEST_CASE("coded gradients of groups of other sizes add in another order, which shows") {
  const auto coded = [](int group) {
    MeshRun run = run_of({.group = group});
    run.compress = read_compress_config(JsonReader::parse(
        R"({"policy": "all", "data_gradient": {"codec": "low_rank", "rank": 2}})", "test"));
    return run_mesh(run);
  };
  CHECK(bit_differences(coded(4), coded(2)) != "");
}

// Else the cases above would compare a way with itself.
TEST_CASE("groups of other sizes add in another order, which shows") {
  const MeshRun run = run_of({.group = 4});
  CHECK(bit_differences(run_mesh(run), run_mesh(run_of({.group = 2}))) != "");
}

}  // namespace slackline::testing
