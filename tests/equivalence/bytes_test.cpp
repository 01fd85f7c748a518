// What ranks really send in a step against the formulas of docs/schedule.md, to the byte.

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/comm/world.h"
#include "parallel/predict/sent_bytes.h"
#include "tests/equivalence/mesh_run.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

std::size_t size(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

std::size_t sent_in(const std::unique_ptr<Communicator>& group) {
  return group == nullptr ? 0 : group->bytes_sent();
}

AxisBytes sent_by_rank(const Groups& groups) {
  return {.tensor = {sent_in(groups.tensor)},
          .pipeline = {sent_in(groups.forward) + sent_in(groups.backward)},
          .data = {sent_in(groups.data) + sent_in(groups.group) + sent_in(groups.across_groups)},
          .embedding = {sent_in(groups.table) + sent_in(groups.table_pair)}};
}

enum class On { cpu, rehearsal };

AxisBytes sent_in_a_step(const MeshRun& run, On device) {
  MeshModel::Options options = run.options();
  if (device == On::rehearsal) {
    options.rehearsal = StepRehearsal::Costs{
        .ops = schedule::uniform_costs(run.parallel.pipeline * run.parallel.chunks, {}),
        .codecs = std::make_shared<const StepCosts>()};
  }
  std::vector<AxisBytes> sent(size(run.parallel.num_ranks()));
  run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
    Groups groups(world, run.parallel, run.model.tie_embeddings);
    MeshModel model(options, groups);
    if (device == On::cpu) {
      model.initialize(kSeed);
    }
    const AxisBytes before = sent_by_rank(groups);
    RankBatches batches(run, model, 1);
    const StepFacts facts = model.make_gradients(batches.micro_batches());
    model.update(kLearningRate, facts.gradient_norm);
    model.finish_gather();
    AxisBytes& own = sent[size(world.rank())];
    own = sent_by_rank(groups);
    own.tensor.value -= before.tensor.value;
    own.pipeline.value -= before.pipeline.value;
    own.data.value -= before.data.value;
    own.embedding.value -= before.embedding.value;
  });
  AxisBytes sum;
  for (const AxisBytes& rank : sent) {
    sum.tensor += rank.tensor;
    sum.pipeline += rank.pipeline;
    sum.data += rank.data;
    sum.embedding += rank.embedding;
  }
  return sum;
}

std::string text_of(const AxisBytes& bytes) {
  return fmt::format("tensor {} pipeline {} data {} embedding {}",
                     bytes.tensor.value,
                     bytes.pipeline.value,
                     bytes.data.value,
                     bytes.embedding.value);
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
  run.parallel.transfers = variant == 3 ? Transfers::blocking : Transfers::asynchronous;
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
  CHECK(text_of(sent_in_a_step(run, device)) ==
        text_of(step_bytes(MeshLists(run.options().job), {})));
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

// Four data ranks in two groups, over variants and pipelines.
void require_bytes_of_strategies(On device) {
  for (const DataStrategy& strategy : all_data_strategies()) {
    for (int variant = 0; variant < kNumVariants; ++variant) {
      for (const int pipeline : {1, 2}) {
        MeshRun run = variant_of(variant, 1, pipeline, 4);
        run.parallel.group = 2;
        run.parallel.data_strategy = strategy;
        run.global_batch *= 2;
        INFO("variant " << variant << " p" << pipeline << " " << letters_of(strategy));
        CHECK(text_of(sent_in_a_step(run, device)) ==
              text_of(step_bytes(MeshLists(run.options().job), {})));
      }
    }
  }
}

}  // namespace

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
