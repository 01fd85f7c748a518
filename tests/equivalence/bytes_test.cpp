// What ranks really send in a step against the formulas of docs/schedule.md, to the byte.

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/comm/world.h"
#include "parallel/plan/sent_bytes.h"
#include "tests/equivalence/mesh_run.h"
#include "tests/parallel/uniform_costs.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

std::size_t size(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

using Counter = std::size_t (Communicator::*)() const;

AxisBytes counted_by_rank(const Groups& groups, Counter counter) {
  const auto of = [&](const std::unique_ptr<Communicator>& group) {
    return group == nullptr ? 0 : (group.get()->*counter)();
  };
  AxisBytes bytes{};
  bytes[kTensorAxis] = of(groups.tensor);
  bytes[kPipelineAxis] = of(groups.forward) + of(groups.backward);
  bytes[kDataAxis] = of(groups.data) + of(groups.group) + of(groups.across_groups);
  bytes[kEmbeddingAxis] = of(groups.table) + of(groups.table_pair);
  return bytes;
}

void add(const AxisBytes& bytes, AxisBytes& sum) {
  std::ranges::transform(sum, bytes, sum.begin(), std::plus());
}

AxisBytes less(AxisBytes bytes, const AxisBytes& before) {
  std::ranges::transform(bytes, before, bytes.begin(), std::minus());
  return bytes;
}

// All of a step, and what left its group of data ranks.
struct StepBytes {
  AxisBytes sent{};
  AxisBytes across{};
};

StepBytes sent_by_rank(const Groups& groups) {
  return {.sent = counted_by_rank(groups, &Communicator::bytes_sent),
          .across = counted_by_rank(groups, &Communicator::bytes_sent_across)};
}

enum class On { cpu, rehearsal };

StepBytes sent_in_a_step(const MeshRun& run, On device) {
  MeshModel::Options options = run.options();
  if (device == On::rehearsal) {
    options.rehearsal = StepRehearsal::Costs{
        .ops = schedule::uniform_costs(run.parallel.pipeline * run.parallel.chunks, {}),
        .codecs = std::make_shared<const StepCosts>()};
  }
  std::vector<StepBytes> sent(size(run.parallel.num_ranks()));
  run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
    Groups groups(world, run.parallel, run.model.tie_embeddings);
    MeshModel model(options, groups);
    if (device == On::cpu) {
      model.initialize(kSeed);
    }
    const StepBytes before = sent_by_rank(groups);
    RankBatches batches(run, model, 1);
    const StepFacts facts = model.make_gradients(batches.micro_batches());
    model.update(kLearningRate, facts.gradient_norm);
    model.finish_gather();
    const StepBytes after = sent_by_rank(groups);
    sent[size(world.rank())] = {.sent = less(after.sent, before.sent),
                                .across = less(after.across, before.across)};
  });
  StepBytes sum;
  for (const StepBytes& rank : sent) {
    add(rank.sent, sum.sent);
    add(rank.across, sum.across);
  }
  return sum;
}

StepBytes predicted(const MeshRun& run) {
  const MeshLists lists(run.options().job);
  const PlanHistory plans = run.options().compression;
  const CompressionPlan plan = plans.empty() ? CompressionPlan{} : plans.back().plan;
  const StepTraffic::Axes all = step_traffic(lists, plan).all;
  return {.sent = all.sent, .across = all.across};
}

std::string text_of(const AxisBytes& bytes) {
  return fmt::format("tensor {} pipeline {} data {} embedding {}",
                     bytes[kTensorAxis],
                     bytes[kPipelineAxis],
                     bytes[kDataAxis],
                     bytes[kEmbeddingAxis]);
}

std::string text_of(const StepBytes& bytes) {
  return text_of(bytes.sent) + ", between groups " + text_of(bytes.across);
}

// Sets of options that between them have everything that bytes depend on.
constexpr int kNumVariants = 6;

MeshRun variant_of(int variant, int tensor, int pipeline, int data) {
  const bool interleaved = variant == 4 && pipeline > 1 && pipeline <= 8;
  MeshRun run{.model = {.layers = interleaved ? 2 * pipeline : pipeline + 1,
                        .hidden = 48,
                        .heads = 12,
                        .sequence = 12,
                        .vocab = 67,
                        .ffn = 96,
                        .tie_embeddings = variant != 3 && variant != 5,
                        .recompute = variant == 3 ? Recompute::block : Recompute::none}};
  run.parallel.tensor = tensor;
  run.parallel.pipeline = pipeline;
  run.parallel.data = data;
  run.parallel.sequence_parallel = variant % 2 == 1;
  run.parallel.data_strategy =
      variant == 1 || variant == 2 || variant == 5 ? DataStrategy::zero1 : DataStrategy::replicate;
  run.parallel.embedding_sync =
      variant == 2 || variant == 4 ? EmbeddingSync::separate : EmbeddingSync::fused;
  run.parallel.transfers =
      variant == 3 ? schedule::Transfers::blocking : schedule::Transfers::asynchronous;
  if (interleaved) {
    run.parallel.schedule = ScheduleName::interleaved;
    run.parallel.chunks = 2;
  } else if (variant == 5) {
    run.parallel.schedule = ScheduleName::zb_h1;
  }
  run.precision = variant == 2 ? DType::bf16 : DType::f32;
  run.global_batch = run.micro_batch * data * pipeline;  // as many micro-batches as stages
  return run;
}

void require_bytes(int variant, int tensor, int pipeline, int data, On device) {
  const MeshRun run = variant_of(variant, tensor, pipeline, data);
  INFO("variant " << variant << " t" << tensor << " p" << pipeline << " d" << data);
  CHECK(text_of(sent_in_a_step(run, device)) == text_of(predicted(run)));
}

// Every mesh of at most `most` ranks whose tensor degree divides 12 heads.
void require_bytes_of_meshes(int most, On device = On::cpu) {
  for (int tensor = 1; tensor <= most; ++tensor) {
    for (int pipeline = 1; 12 % tensor == 0 && tensor * pipeline <= most; ++pipeline) {
      for (int data = 1; tensor * pipeline * data <= most; ++data) {
        for (int variant = 0; variant < kNumVariants; ++variant) {
          require_bytes(variant, tensor, pipeline, data, device);
        }
      }
    }
  }
}

// Goes directly, or through groups one way and the other.
std::optional<CollectiveWays> ways_of(std::size_t number) {
  constexpr GroupWays kSequential{.sequential_from = 0};
  constexpr GroupWays kOverlapped{.overlapped_from = 0};
  switch (number % 3) {
    case 0:
      return std::nullopt;
    case 1:
      return CollectiveWays{.data = kSequential, .table = kOverlapped};
    default:
      return CollectiveWays{.data = kOverlapped, .table = kSequential};
  }
}

// Four data ranks in two groups, over variants and pipelines.
void require_bytes_of_strategies(On device, const std::vector<std::string>& trainable = {}) {
  std::size_t number = 0;
  for (const DataStrategy& strategy : all_data_strategies()) {
    for (int variant = 0; variant < kNumVariants; ++variant) {
      for (const int pipeline : {1, 2}) {
        MeshRun run = variant_of(variant, 1, pipeline, 4);
        run.parallel.group = 2;
        run.parallel.data_strategy = strategy;
        run.parallel.ways = ways_of(number++);
        run.global_batch *= 2;
        run.model.trainable = trainable;
        INFO("variant " << variant << " p" << pipeline << " " << letters_of(strategy));
        CHECK(text_of(sent_in_a_step(run, device)) == text_of(predicted(run)));
      }
    }
    // Three ranks do not divide every bucket, nor a table's halves.
    for (const auto& [pipeline, data] : {std::pair{1, 6}, {2, 3}, {2, 6}}) {
      MeshRun uneven = variant_of(0, 1, pipeline, data);
      uneven.parallel.group = 3;
      uneven.parallel.data_strategy = strategy;
      uneven.model.trainable = trainable;
      INFO("groups of three, " << letters_of(strategy) << ", p" << pipeline << " d" << data);
      CHECK(text_of(sent_in_a_step(uneven, device)) == text_of(predicted(uneven)));
    }
  }
}

// Sums of bf16 cross in fp32, so a codec's way shows in its bytes. What codecs send crosses through
// groups, too.
void require_bytes_of_codecs(const DataStrategy& strategy) {
  for (const char* codec : {R"({"codec": "low_rank", "rank": 2})",
                            R"({"codec": "cast"})",
                            R"({"codec": "quantize", "bits": 8})"}) {
    std::size_t across_directly = 0;
    for (std::size_t number = 0; number < 3; ++number) {
      MeshRun run = variant_of(0, 1, 2, 4);
      run.parallel.group = 2;
      run.parallel.data_strategy = strategy;
      run.parallel.ways = ways_of(number);
      run.global_batch *= 2;
      run.compress = read_compress_config(JsonReader::parse(
          fmt::format(R"({{"policy": "all", "data_gradient": {0}, "embedding": {0}}})", codec),
          "test"));
      INFO(codec << ", ways " << number << ", " << letters_of(strategy));
      const StepBytes bytes = predicted(run);
      CHECK(text_of(sent_in_a_step(run, On::cpu)) == text_of(bytes));
      if (number == 0) {
        across_directly = bytes.across[kDataAxis];
      } else {
        CHECK(bytes.across[kDataAxis] < across_directly);
      }
    }
  }
}

// Sums that strategies take apart, between groups or in passes.
void require_bytes_of_shared_sums(MeshRun run, int group, On device) {
  run.parallel.group = group;
  run.global_batch *= 2;
  const std::size_t plain = predicted(run).across[kDataAxis];
  for (const char* codec : {R"({"codec": "low_rank", "rank": 2})",
                            R"({"codec": "cast"})",
                            R"({"codec": "top_k", "ratio": 0.1})",
                            R"({"codec": "quantize", "bits": 4, "scale": "channel"})"}) {
    const bool has_table =
        run.model.tie_embeddings && run.parallel.pipeline == 1 && !run.parallel.sums_in_passes();
    run.compress = read_compress_config(
        JsonReader::parse(fmt::format(R"({{"policy": "all", "data_gradient": {}{}}})",
                                      codec,
                                      has_table ? fmt::format(R"(, "embedding": {})", codec) : ""),
                          "test"));
    INFO(codec << ", " << run.parallel.tensor << " x " << run.parallel.pipeline << " x "
               << run.parallel.data << ", " << letters_of(run.parallel.data_strategy));
    const StepBytes bytes = predicted(run);
    CHECK(text_of(sent_in_a_step(run, device)) == text_of(bytes));
    CHECK(bytes.across[kDataAxis] < plain);
  }
}

void require_bytes_of_shared_sums(On device) {
  for (const DataStrategy& strategy : all_data_strategies()) {
    if (!strategy.has_steps()) {
      continue;
    }
    const auto require = [&](int variant, int tensor, int pipeline, int data, int group) {
      MeshRun run = variant_of(variant, tensor, pipeline, data);
      run.parallel.data_strategy = strategy;
      require_bytes_of_shared_sums(run, group, device);
    };
    require(0, 1, 1, 4, 2);
    require(0, 1, 1, 6, 3);
    require(1, 2, 1, 4, 2);
    require(0, 1, 2, 4, 2);  // a table in halves
    require(4, 1, 2, 4, 2);  // interleaved
    require(5, 1, 2, 4, 2);  // ZB-H1, untied
  }
}

// Weights that passes gather as frames, directly and through groups.
void require_bytes_of_gathers(On device) {
  std::size_t number = 0;
  for (const DataStrategy& strategy : all_data_strategies()) {
    if (strategy.parameters == Extent::none) {
      continue;
    }
    for (int variant = 0; variant < kNumVariants; ++variant) {
      for (const int pipeline : {1, 2}) {
        MeshRun run = variant_of(variant, 1, pipeline, 4);
        run.parallel.group = 2;
        run.parallel.data_strategy = strategy;
        run.parallel.ways = ways_of(number++);
        run.global_batch *= 2;
        const std::size_t plain = predicted(run).sent[kDataAxis];
        run.compress = read_compress_config(JsonReader::parse(
            R"({"policy": "all", "parameter_gather": {"codec": "quantize", "bits": 8}})", "test"));
        INFO("variant " << variant << " p" << pipeline << " " << letters_of(strategy));
        const StepBytes bytes = predicted(run);
        CHECK(text_of(sent_in_a_step(run, device)) == text_of(bytes));
        CHECK(bytes.sent[kDataAxis] < plain);
      }
    }
  }
}

}  // namespace

TEST_CASE("coded weights send the bytes of the formulas") {
  require_bytes_of_gathers(On::cpu);
}

TEST_CASE("rehearsed coded weights send the bytes of the formulas") {
  require_bytes_of_gathers(On::rehearsal);
}

TEST_CASE("what is not trained is gathered, and sends nothing else") {
  require_bytes_of_strategies(On::cpu, {"h.0.*", "h.1.mlp.*.bias"});
  require_bytes_of_strategies(On::cpu, {"wte.weight", "ln_f.*"});
}

TEST_CASE("coded gradients send the bytes of the formulas through groups, too") {
  require_bytes_of_codecs(DataStrategy::replicate);
  require_bytes_of_codecs(DataStrategy::zero1);
}

// Codecs sit between groups, so less crosses than where they sit on sums of all ranks.
TEST_CASE("coded gradients of sums by levels send the bytes of the formulas") {
  for (const char* letters : {"NNN", "NNG", "NGG", "GGG"}) {
    for (const auto& [variant, pipeline, data] : {std::tuple{0, 1, 4}, {0, 2, 4}, {1, 1, 6}}) {
      MeshRun run = variant_of(variant, 1, pipeline, data);
      run.parallel.data_strategy = *data_strategy_named(letters);
      run.parallel.group = data / 2;
      run.global_batch *= 2;
      run.compress = read_compress_config(JsonReader::parse(
          R"({"policy": "all", "data_gradient": {"codec": "quantize", "bits": 4}})", "test"));
      const StepBytes at_once = predicted(run);
      run.parallel.codes_sums = true;
      INFO(letters << ", pipeline " << pipeline << ", data " << data);
      const StepBytes bytes = predicted(run);
      CHECK(text_of(sent_in_a_step(run, On::cpu)) == text_of(bytes));
      CHECK(text_of(sent_in_a_step(run, On::rehearsal)) == text_of(bytes));
      CHECK(bytes.across[kDataAxis] < at_once.across[kDataAxis]);
    }
  }
}

TEST_CASE("coded gradients that strategies take apart send the bytes of the formulas") {
  require_bytes_of_shared_sums(On::cpu);
}

TEST_CASE("rehearsed coded gradients that strategies take apart send the bytes of the formulas") {
  require_bytes_of_shared_sums(On::rehearsal);
}

TEST_CASE("data strategies send the bytes of the formulas") {
  require_bytes_of_strategies(On::cpu);
}

TEST_CASE("rehearsed data strategies send the bytes of the formulas") {
  require_bytes_of_strategies(On::rehearsal);
}

TEST_CASE("the bytes of a step are those of the formulas on up to four ranks") {
  require_bytes_of_meshes(4);
}

TEST_CASE("a rehearsed step sends the bytes of the formulas on up to eight ranks") {
  require_bytes_of_meshes(8, On::rehearsal);
}

TEST_CASE("the bytes of a step are those of the formulas on up to sixteen ranks", "[slow]") {
  require_bytes_of_meshes(16);
}

}  // namespace slackline::testing
